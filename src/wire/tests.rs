use super::*;
use crate::{
    base::{Bitmap, Bounded, Digest, NodeId, RunId, limits},
    identity::{Identity, Signature},
    wire::{
        blob::BlobIndex,
        fetch::{Reply, Request},
    },
};

const RUN: RunId = RunId([1; 32]);

fn member(index: u8) -> Member {
    Member { node: NodeId([index; 32]), weight: 40, omega: 256, lease: 100 }
}

fn header(members: usize) -> Header {
    let list: Vec<Member> = (0..members).map(|i| member(i as u8)).collect();
    let set = MemberSet { members: Bitmap::full(members), divisor: 256 };
    Header {
        round: 1,
        parent: Digest([2; 32]),
        voters: Bitmap::full(members),
        members: list.try_into().unwrap(),
        guests: Bounded::try_from(vec![Guest { node: NodeId([9; 32]), lease: 1 }; Guest::MAX])
            .unwrap(),
        member_sets: Bounded::try_from(vec![set; limits::MAX_MEMBER_SETS]).unwrap(),
        jobs: 3,
        jobs_root: Digest([3; 32]),
        rank: 0,
        bits: 4,
        gather_bits: 0,
        local_steps: 10,
        size: 1,
        feedback: 2,
        cursor: 0,
        body_bytes: 10,
        body: Digest([4; 32]),
        root_before: Digest([5; 32]),
        weight: 40 * members as u64,
    }
}

fn plan() -> Plan {
    let header = header(2);
    Plan {
        run: RUN,
        round: 1,
        attempt: 0,
        parent: header.parent,
        voters: header.voters,
        members: header.members,
        guests: header.guests,
        rank: 0,
        bits: 4,
        gather_bits: 0,
        local_steps: 10,
        size: 0,
        feedback: 0,
        cursor: 7,
        root_before: Digest([5; 32]),
    }
}

fn messages() -> Vec<Message> {
    let digest = Digest([6; 32]);
    let signature = Signature([7; 64]);
    vec![
        Message::Presence(Presence {
            lifetime_ms: 4000,
            expects: 3,
            head: Head { round: 2, digest, weight: 9 },
            status: Status::Training,
            fetching: false,
            addresses: Bounded::new(),
        }),
        Message::Goodbye,
        Message::Ready(Ready {
            round: 1,
            attempt: 0,
            parent: digest,
            weight: 5,
            size: 1,
            feedback: 2,
            blame: None,
        }),
        Message::Closing { round: 1, attempt: 0, parent: digest },
        Message::Propose(plan()),
        Message::Accept {
            round: 1,
            attempt: 0,
            plan: digest,
            signed: None,
            finished: Finished::default(),
        },
        Message::Refused { round: 1, attempt: 0, plan: digest, reason: Refusal::Leaving },
        Message::Start { round: 1, attempt: 0, plan: digest },
        Message::Voted { round: 1, attempt: 0, header: digest, signature },
        Message::HeaderProposed(Box::new(SignedHeader { attempt: 0, header: header(2) })),
        Message::Committed(Box::new(Certificate {
            header: header(2),
            attempt: 0,
            votes: Bounded::try_from(vec![Vote { voter: NodeId([8; 32]), signature }]).unwrap(),
        })),
    ]
}

#[test]
fn message_tags_are_pinned() {
    for (tag, message) in messages().iter().enumerate() {
        let bytes = codec::encode(message);
        assert_eq!(bytes[..4], (tag as u32).to_le_bytes(), "{}", message.name());
    }
}

#[test]
fn golden_hash_of_all_messages() {
    let bytes: Vec<u8> = messages().iter().flat_map(codec::encode).collect();
    assert_eq!(Digest::of(&bytes).to_string(), include_str!("golden.txt").trim());
}

#[test]
fn envelopes_round_trip_and_refuse_changes() {
    let me = Identity::from_bytes(&[5; 32]);
    for message in messages() {
        let envelope = Envelope::seal(&me, RUN, 1, 2, message);
        let bytes = envelope.to_bytes();
        assert!(bytes.len() <= limits::MAX_CONTROL_BYTES);
        assert_eq!(Envelope::open(&bytes, RUN).unwrap(), envelope);
        let mut changed = bytes.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        assert!(Envelope::open(&changed, RUN).is_err());
        for cut in 0..bytes.len() {
            assert!(Envelope::open(&bytes[..cut], RUN).is_err());
        }
    }
}

#[test]
fn another_version_is_told_apart_from_noise() {
    let me = Identity::from_bytes(&[5; 32]);
    let mut bytes = Envelope::seal(&me, RUN, 1, 2, Message::Goodbye).to_bytes();
    bytes[0] = 9;
    assert_eq!(Envelope::open(&bytes, RUN), Err(EnvelopeError::Version { theirs: 9 }));
}

#[test]
fn the_largest_header_fits_four_kibibytes() {
    assert!(codec::encode(&header(limits::MAX_MEMBERS)).len() <= limits::MAX_HEADER_BYTES);
}

#[test]
fn the_largest_frame_head_fits_its_bound() {
    let proof = HopProof { digest: Digest([1; 32]), signature: Signature([2; 64]) };
    let frame = Frame {
        header: FrameHeader {
            round: 1,
            attempt: 0,
            job: JobId { bucket: 0, phase: JobPhase::Plain, kind: JobKind::Sums },
            pass: Pass::Reduce,
            chunk: 0,
            hop: 1,
            first_unit: 0,
            units: 1,
            commitment: Some(Digest([3; 32])),
            proof: Some(proof),
        },
        payload: vec![7; limits::MAX_FRAME_BYTES],
    };
    let bytes = frame.to_bytes();
    assert!(bytes.len() <= limits::MAX_FRAME_WIRE_BYTES);
    assert_eq!(Frame::from_bytes(&bytes).unwrap(), frame);
    for cut in 0..100 {
        assert!(Frame::from_bytes(&bytes[..cut]).is_err());
    }
    assert!(Frame::from_bytes(&vec![0; limits::MAX_FRAME_WIRE_BYTES + 1]).is_err());
}

#[test]
fn requests_and_replies_round_trip() {
    let requests = [
        Request::Runs,
        Request::Manifest(RUN),
        Request::Chain { run: RUN, from: 3 },
        Request::Snapshots(RUN),
        Request::BlobIndex(Digest([1; 32])),
        Request::BlobChunk { blob: Digest([1; 32]), chunk: 2 },
        Request::SnapshotLeaf { run: RUN, round: 3, leaf: 4 },
    ];
    for request in requests {
        assert_eq!(Request::from_bytes(&request.to_bytes()).unwrap().unwrap(), request);
    }
    let bytes = Reply::Bytes(Bounded::try_from(vec![1, 2, 3]).unwrap());
    assert_eq!(Reply::from_bytes(&bytes.to_bytes()).unwrap(), bytes);
    assert_eq!(codec::encode(&bytes), fetch::bytes_reply(&[1, 2, 3]));
    assert_eq!(Request::from_bytes(&[9, 0, 0, 0]).unwrap(), Err(9));
}

#[test]
fn a_blob_index_names_its_chunks() {
    let bytes = vec![5u8; limits::BLOB_CHUNK_BYTES + 10];
    let index = BlobIndex::of(&bytes).unwrap();
    assert_eq!(index.chunks.len(), 2);
    assert_eq!((index.chunk_len(0), index.chunk_len(1)), (limits::BLOB_CHUNK_BYTES, 10));
    index.verify(index.digest()).unwrap();
    assert!(index.verify(Digest([0; 32])).is_err());
    let mut short = index;
    short.bytes -= 11;
    assert!(short.verify(short.digest()).is_err());
}

#[test]
fn a_certificate_needs_more_than_half_of_its_voters() {
    let voters: Vec<Identity> = (1..=4).map(|i| Identity::from_bytes(&[i; 32])).collect();
    let mut parent = header(4);
    for (member, voter) in parent.members.as_mut_slice().iter_mut().zip(&voters) {
        member.node = voter.node_id();
    }
    let mut child = parent.clone();
    child.round = 2;
    child.parent = parent.digest();
    child.cursor = parent.cursor_after();
    child.weight = parent.weight + 160;
    let bytes = vote_bytes(RUN, 2, 3, child.digest());
    let vote = |voter: &Identity| Vote {
        voter: voter.node_id(),
        signature: voter.sign(domain::VOTE, &bytes),
    };
    let certificate = |count: usize, repeat: usize| Certificate {
        header: child.clone(),
        attempt: 3,
        votes: voters[..count]
            .iter()
            .map(vote)
            .flat_map(|vote| vec![vote; repeat])
            .collect::<Vec<_>>()
            .try_into()
            .unwrap(),
    };
    assert!(certificate(3, 1).verify(RUN, &parent).is_ok());
    assert!(certificate(2, 1).verify(RUN, &parent).is_err());
    assert!(certificate(2, 3).verify(RUN, &parent).is_err(), "repeats do not count");
    assert!(certificate(3, 1).verify(RunId([9; 32]), &parent).is_err());
    let mut wrong_attempt = certificate(3, 1);
    wrong_attempt.attempt = 2;
    assert!(wrong_attempt.verify(RUN, &parent).is_err());
}
