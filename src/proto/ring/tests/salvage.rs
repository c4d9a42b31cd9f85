//! Finished buckets as others see them.

use super::world::{ROUND, RUN, Setup, World};
use crate::{
    base::Bitmap,
    codec::JobResult,
    proto::ring::{BucketClaim, ChunkProof, InvalidBucket},
    wire::Member,
};

const BUCKET: u32 = 2;

/// What a node hands on of a finished bucket.
struct Kept {
    setup: Setup,
    members: Vec<Member>,
    result: JobResult,
    proofs: Vec<ChunkProof>,
    plan_members: usize,
}

impl Kept {
    fn new() -> Self {
        let mut world = World::new(Setup { order: vec![2, 0, 1], ..Setup::new(3) });
        world.run(5);
        let bucket = &world.outcome(1).unwrap().buckets[BUCKET as usize];
        let (result, proofs) = (bucket.result.clone(), bucket.proofs.to_vec());
        Self { members: world.setup.members(), setup: world.setup, result, proofs, plan_members: 3 }
    }

    fn claim(&self) -> BucketClaim<'_> {
        BucketClaim {
            run: RUN,
            round: ROUND,
            bucket: BUCKET,
            spec: &self.setup.specs[BUCKET as usize],
            bits: self.setup.bits,
            plan_members: self.plan_members,
            members: &self.members,
            result: &self.result,
            proofs: &self.proofs,
        }
    }

    fn verify(&self) -> Result<(), InvalidBucket> {
        self.claim().verify()
    }
}

#[test]
fn a_finished_bucket_is_verified_by_who_was_not_there() {
    let mut kept = Kept::new();
    assert_eq!(kept.verify(), Ok(()));
    kept.members.rotate_left(1);
    assert_eq!(kept.verify(), Ok(()), "members come in any order");
}

#[test]
fn it_stands_in_a_plan_of_more_members() {
    let mut kept = Kept::new();
    let sums = kept.result.unpacked(kept.setup.bits, 3).unwrap();
    let (codes, members) = (kept.result.codes.clone(), [1, 2, 6].into_iter().collect::<Bitmap>());
    kept.result = JobResult::new(members, codes, &sums, kept.setup.bits, 7);
    kept.plan_members = 7;
    assert_eq!(kept.verify(), Ok(()));
}

#[test]
fn any_change_of_it_is_seen() {
    let is_signature =
        |r: &Result<(), InvalidBucket>| matches!(r, Err(InvalidBucket::Signature(_)));
    let changed = |change: fn(&mut Kept)| {
        let mut kept = Kept::new();
        change(&mut kept);
        kept.verify()
    };
    // 4 bits, 3 members: sums of 21 at most, packed as 21 + sum in 6 bits.
    assert!(is_signature(&changed(|kept| kept.result.sums[0] ^= 1)));
    assert!(is_signature(&changed(|kept| kept.result.codes[2] ^= 1)));
    assert!(is_signature(&changed(|kept| kept.members[1].omega ^= 1)));
    assert!(is_signature(&changed(|kept| kept.proofs[0].signature.0[9] ^= 1)));
    assert!(is_signature(&changed(|kept| kept.proofs.swap(0, 1))));
    assert!(changed(|kept| kept.result.sums.fill(0xff)).is_err());
}

#[test]
fn every_member_must_have_signed_once() {
    let mut kept = Kept::new();
    kept.proofs[1] = kept.proofs[0];
    assert_eq!(kept.verify(), Err(InvalidBucket::Owners(3)));
    let mut kept = Kept::new();
    kept.proofs.pop();
    assert_eq!(kept.verify(), Err(InvalidBucket::Owners(2)));
    let mut kept = Kept::new();
    kept.members.pop();
    let error = InvalidBucket::Contributions { expected: 2, found: 3 };
    assert_eq!(kept.verify(), Err(error));
}

#[test]
fn a_signature_is_worth_nothing_elsewhere() {
    let kept = Kept::new();
    let claim = kept.claim();
    let refused =
        |claim: BucketClaim<'_>| matches!(claim.verify(), Err(InvalidBucket::Signature(_)));
    assert!(refused(BucketClaim { round: ROUND + 1, ..claim }));
    assert!(refused(BucketClaim { run: crate::base::RunId([0; 32]), ..claim }));
    assert!(refused(BucketClaim { bucket: BUCKET + 1, ..claim }));
}
