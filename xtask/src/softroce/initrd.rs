//! The start-up file system of the virtual machine, a cpio archive of the kernel's "newc" kind.
//!
//! Protocol: each entry is a header of a magic number and thirteen fields of eight hexadecimal digits, the
//! name with a zero behind it, and the contents. Name and contents are padded to four bytes (the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`).

/// Bits of an entry's mode that say what it is.
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
/// Major and minor number of the kernel's console.
const CONSOLE: (u32, u32) = (5, 1);

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entry_count: u32,
}

impl Archive {
    pub(super) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY | 0o755, (0, 0), &[]);
    }

    /// A file that may be executed.
    pub(super) fn file(&mut self, name: &str, contents: &[u8]) {
        self.entry(name, REGULAR | 0o755, (0, 0), contents);
    }

    /// Where the first process's output goes until it says otherwise.
    pub(super) fn console(&mut self, name: &str) {
        self.entry(name, CHARACTER_DEVICE | 0o600, CONSOLE, &[]);
    }

    /// The bytes, with the entry that ends an archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        self.entry_count += 1;
        let content_bytes = u32::try_from(contents.len()).expect("files far below 4 GiB");
        let name_bytes = u32::try_from(name.len() + 1).expect("short names");
        let (major, minor) = device;
        // Number, mode, owner, group, links, time, bytes, device of the file, device it is, name, check sum.
        let fields = [self.entry_count, mode, 0, 0, 1, 0, content_bytes, 0, 0, major, minor, name_bytes, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_laid_out_as_the_kernel_reads_them() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.file("bin/sh", b"five!");
        archive.console("console");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        // 110 bytes of header and "bin\0" end at 114, padded 116: the next header.
        assert_eq!(&bytes[..22], b"0707010000000100".iter().chain(b"0041ed").copied().collect::<Vec<_>>());
        assert_eq!(&bytes[110..116], b"bin\0\0\0");
        assert_eq!(&bytes[116..122], b"070701");
        // Its seventh field is the number of bytes, and they follow the name at the next multiple of four.
        assert_eq!(&bytes[116 + 6 + 6 * 8..][..8], b"00000005");
        assert_eq!(&bytes[226..233], b"bin/sh\0");
        assert_eq!(&bytes[236..244], b"five!\0\0\0");
        assert_eq!(&bytes[244 + 14..][..8], b"00002180");
        assert!(bytes.windows(11).any(|window| window == b"TRAILER!!!\0"));
    }
}
