//! What every part of a running ring needs to know and nothing changes.

use crate::{
    base::NodeId,
    identity::Identity,
    proto::ring::{
        InvalidRing, RingConfig,
        schedule::{Place, Shape},
        verify::Seal,
    },
    wire::{JobId, member_set_digest},
};

/// The fixed part of a ring.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: RingConfig,
    pub(super) identity: Identity,
    pub(super) place: Place,
    pub(super) seal: Seal,
    /// Most payload bytes of a frame.
    pub(super) frame_bytes: usize,
}

impl Context {
    pub(super) fn new(
        config: RingConfig,
        identity: Identity,
        frame_bytes: usize,
    ) -> Result<Self, InvalidRing> {
        config.validate()?;
        let position = config.members.iter().position(|member| member.node == config.me);
        let me = position
            .filter(|_| identity.node_id() == config.me)
            .ok_or(InvalidRing::NotMember(config.me))?;
        let place = Place { members: config.members.len(), me };
        let set = member_set_digest(&config.members);
        let seal = Seal { run: config.run, round: config.round, attempt: config.attempt, set };
        Ok(Self { config, identity, place, seal, frame_bytes })
    }

    pub(super) fn node(&self, position: usize) -> NodeId {
        self.config.members[position].node
    }

    pub(super) fn predecessor(&self) -> NodeId {
        self.node(self.place.predecessor())
    }

    pub(super) fn successor(&self) -> NodeId {
        self.node(self.place.successor())
    }

    /// This member's share.
    pub(super) fn omega(&self) -> u16 {
        self.config.members[self.place.me].omega
    }

    pub(super) fn shape(&self, job: JobId) -> Shape<'_> {
        Shape {
            spec: &self.config.specs[job.bucket as usize],
            kind: job.kind,
            bits: self.config.bits,
            members: self.place.members,
            frame_bytes: self.frame_bytes,
        }
    }
}
