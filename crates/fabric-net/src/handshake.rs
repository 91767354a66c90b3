//! How a server holds a client's hello against what it speaks itself, and why connections end.

use farsight_base::Epoch;

/// How a server introduces itself.
#[derive(Clone, Copy, Debug)]
pub struct Handshake {
    /// The server's life.
    pub epoch: Epoch,
    /// What a hello of this fabric begins with.
    pub magic: u64,
    /// Version of what the fabric sends.
    pub fabric_version: u32,
    /// Version of the bytes in regions and calls.
    pub format_version: u32,
}

/// Why a connection has to go.
#[derive(Debug)]
pub enum Ending {
    /// It closed, died, or stopped reading.
    Gone,
    /// It was not let in.
    Refused(String),
    /// It broke the protocol, or was fenced.
    Dismissed(String),
    /// What connects it broke, and neither side did it: it may come back.
    Broken(String),
    /// The server stops.
    Stopped,
}

impl Handshake {
    /// Whether a hello with these words is of a client that this server understands.
    ///
    /// # Errors
    /// [`Ending::Refused`], with what differs.
    pub fn check(&self, magic: u64, fabric_version: u32, format_version: u32) -> Result<(), Ending> {
        if magic != self.magic {
            return Err(Ending::Refused(format!("this is no farsight client: magic {magic:#018x}")));
        }
        let versions = [
            ("fabric", self.fabric_version, fabric_version),
            ("format", self.format_version, format_version),
        ];
        match versions.into_iter().find(|(_, own, theirs)| own != theirs) {
            None => Ok(()),
            Some((what, own, theirs)) => Err(Ending::Refused(format!(
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
            assert!(matches!(&refused, Err(Ending::Refused(text)) if text.contains(named)), "{refused:?}");
        }
    }
}
