//! A run that has happened: a toy state with real certificates.

use crate::{
    base::{Bitmap, Bounded, Digest, Round, RunId},
    identity::Identity,
    proto::sync::{IndexReader, LeafRef, LeafTable},
    wire::{
        Certificate, Header, Member, Vote, blob::BlobIndex, codec, domain, fetch::SnapshotOffer,
        vote_bytes,
    },
};

pub(super) const RUN: RunId = RunId([1; 32]);
pub(super) const LEAF: usize = 100;
pub(super) const LEAVES: usize = 20;

/// Everything that honest donors could know.
pub(super) struct Network {
    pub(super) genesis: Header,
    /// Certificate of round i + 1.
    pub(super) chain: Vec<Certificate>,
    /// Body of round i + 1.
    pub(super) bodies: Vec<Vec<u8>>,
    /// State after round i.
    pub(super) states: Vec<Vec<u8>>,
}

pub(super) fn voters(salt: u8) -> Vec<Identity> {
    (1..=3).map(|i| Identity::from_bytes(&[i + salt; 32])).collect()
}

fn members(voters: &[Identity]) -> Vec<Member> {
    let member =
        |voter: &Identity| Member { node: voter.node_id(), weight: 8, omega: 256, lease: 9 };
    voters.iter().map(member).collect()
}

pub(super) fn genesis() -> Header {
    Header {
        round: 0,
        parent: Digest(RUN.0),
        voters: Bitmap::EMPTY,
        members: members(&voters(0)).try_into().unwrap(),
        guests: Bounded::new(),
        member_sets: Bounded::new(),
        jobs: 0,
        jobs_root: Digest([0; 32]),
        rank: 0,
        bits: 4,
        gather_bits: 0,
        local_steps: 10,
        size: 0,
        feedback: 0,
        cursor: 0,
        body_bytes: 0,
        body: Digest([0; 32]),
        root_before: Digest([0; 32]),
        weight: 0,
    }
}

pub(super) fn initial() -> Vec<u8> {
    vec![7; LEAF * LEAVES]
}

/// The toy fold: every byte depends on the body.
pub(super) fn fold(state: &[u8], body: &[u8]) -> Vec<u8> {
    let digest = Digest::of(body);
    let mix = |(i, byte): (usize, &u8)| byte.wrapping_mul(3).wrapping_add(digest.0[i % 32]);
    state.iter().enumerate().map(mix).collect()
}

pub(super) fn leaves(state: &[u8]) -> Vec<Vec<u8>> {
    state.chunks(LEAF).map(<[u8]>::to_vec).collect()
}

pub(super) fn index_bytes(round: Round, state: &[u8]) -> Vec<u8> {
    let list: Vec<(Digest, u32)> =
        leaves(state).iter().map(|leaf| (Digest::of(leaf), leaf.len() as u32)).collect();
    codec::encode(&(round, list))
}

fn table_root(round: Round, list: &[(Digest, u32)]) -> Digest {
    let bytes: Vec<Vec<u8>> = list.iter().map(codec::encode).collect();
    let parts = bytes.iter().map(Vec::as_slice);
    Digest::of_parts(&format!("toy/{round}"), parts)
}

pub(super) fn root(round: Round, state: &[u8]) -> Digest {
    read(round, &index_bytes(round, state)).unwrap().root
}

fn read(round: Round, bytes: &[u8]) -> Result<LeafTable, String> {
    let (of, list): (Round, Vec<(Digest, u32)>) =
        codec::decode::<_, 100_000>(bytes).map_err(|e| e.to_string())?;
    if of != round {
        return Err("of another round".to_owned());
    }
    let root = table_root(round, &list);
    let leaves = list.into_iter().map(|(digest, bytes)| LeafRef { digest, bytes }).collect();
    Ok(LeafTable { root, leaves })
}

pub(super) fn reader() -> IndexReader {
    IndexReader::new(read)
}

impl Network {
    /// `rounds` rounds with bodies of about `body` bytes; every seventh is empty.
    pub(super) fn new(rounds: Round, body: usize) -> Self {
        Self::branch(genesis(), initial(), rounds, body, 0)
    }

    /// A chain of other voters (`salt` > 0) or the usual ones, from a header on.
    pub(super) fn branch(
        genesis: Header,
        state: Vec<u8>,
        rounds: Round,
        body: usize,
        salt: u8,
    ) -> Self {
        let mut network =
            Self { genesis, chain: Vec::new(), bodies: Vec::new(), states: vec![state] };
        (0..rounds).for_each(|_| network.grow(body, salt));
        network
    }

    pub(super) fn head(&self) -> &Header {
        self.chain.last().map_or(&self.genesis, |certificate| &certificate.header)
    }

    pub(super) fn header(&self, round: Round) -> &Header {
        match round {
            0 => &self.genesis,
            round => &self.chain[round as usize - 1].header,
        }
    }

    /// One more round.
    pub(super) fn grow(&mut self, body: usize, salt: u8) {
        let parent = self.head().clone();
        let round = parent.round + 1;
        let length = if round.is_multiple_of(7) { 0 } else { body + round as usize };
        let bytes: Vec<u8> =
            (0..length).map(|i| (i as u64 * round + u64::from(salt)) as u8).collect();
        let state = self.states.last().unwrap().clone();
        let header = Header {
            round,
            parent: parent.digest(),
            voters: Bitmap::full(3),
            members: members(&voters(salt)).try_into().unwrap(),
            cursor: parent.cursor_after(),
            body_bytes: bytes.len() as u64,
            body: BlobIndex::of(&bytes).unwrap().digest(),
            root_before: root(round - 1, &state),
            weight: parent.weight + 24,
            ..parent
        };
        self.chain.push(certify(header, &voters(salt)));
        self.states.push(fold(&state, &bytes));
        self.bodies.push(bytes);
    }

    pub(super) fn offer(&self, round: Round) -> SnapshotOffer {
        let bytes = index_bytes(round, &self.states[round as usize]);
        SnapshotOffer { round, index: BlobIndex::of(&bytes).unwrap().digest() }
    }
}

pub(super) fn certify(header: Header, voters: &[Identity]) -> Certificate {
    let bytes = vote_bytes(RUN, header.round, 0, header.digest());
    let vote = |voter: &Identity| Vote {
        voter: voter.node_id(),
        signature: voter.sign(domain::VOTE, &bytes),
    };
    let votes: Vec<Vote> = voters.iter().map(vote).collect();
    Certificate { header, attempt: 0, votes: votes.try_into().unwrap() }
}
