//! How a server holds a client's hello against what it speaks itself.

use std::io;

use farsight_base::Epoch;

use crate::{DisconnectReason, os};

/// How a server introduces itself.
#[derive(Clone, Copy, Debug)]
pub struct Handshake {
    /// The server's epoch.
    pub epoch: Epoch,
    /// What a hello of this fabric begins with.
    pub magic: u64,
    /// Version of what the fabric sends.
    pub fabric_version: u32,
    /// Version of the bytes in regions and calls.
    pub format_version: u32,
}

impl Handshake {
    /// Of a server that starts now: its epoch is drawn at random.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(magic: u64, fabric_version: u32, format_version: u32) -> io::Result<Self> {
        let epoch = Epoch(u64::from_le_bytes(os::random()?));
        Ok(Self { epoch, magic, fabric_version, format_version })
    }

    /// Whether a hello with these words is of a client that this server understands.
    ///
    /// # Errors
    /// [`DisconnectReason::Refused`], with what differs.
    pub fn check(
        &self,
        magic: u64,
        fabric_version: u32,
        format_version: u32,
    ) -> Result<(), DisconnectReason> {
        if magic != self.magic {
            return Err(DisconnectReason::Refused(format!(
                "this is no farsight client: magic {magic:#018x}"
            )));
        }
        let versions = [
            ("fabric", self.fabric_version, fabric_version),
            ("format", self.format_version, format_version),
        ];
        match versions.into_iter().find(|(_, own, theirs)| own != theirs) {
            None => Ok(()),
            Some((what, own, theirs)) => Err(DisconnectReason::Refused(format!(
                "server speaks {what} {own}, this client {what} {theirs}: \
                 use the same version of farsight on both sides"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let handshake = Handshake { epoch: Epoch(1), magic: 7, fabric_version: 2, format_version: 3 };
        assert!(handshake.check(7, 2, 3).is_ok());
        for (hello, named) in
            [((6, 2, 3), "magic 0x0000000000000006"), ((7, 9, 3), "fabric 2"), ((7, 2, 9), "client format 9")]
        {
            let refused = handshake.check(hello.0, hello.1, hello.2);
            assert!(
                matches!(&refused, Err(DisconnectReason::Refused(text)) if text.contains(named)),
                "{refused:?}"
            );
        }
    }
}
