//! Where backups are kept: a directory by its path, or a store of objects by its URL.

use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use farsight::{Archive, Pieces, directory_archive};
use futures_util::TryStreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use tokio::runtime::{Builder, Runtime};

/// Bytes of a part of an object. Stores want 5 MiB at least, and 10,000 parts at most.
const PART_BYTES: usize = 16 << 20;

/// What `--help` says of a place.
pub(crate) const PLACES: &str = "\
Places:
  a directory       /backups/monday
  stores of objects s3://bucket/path, gs://bucket/path, az://container/path, https://host/path
                    (programs built with --features cloud; keys as each store's own tools take
                    them from the environment, such as AWS_ACCESS_KEY_ID)";

/// The archive at a place.
pub(crate) fn archive(place: &str) -> Result<Box<dyn Archive>> {
    if place.contains("://") {
        return Ok(Box::new(ObjectArchive::open(place)?));
    }
    Ok(Box::new(directory_archive(Path::new(place))?))
}

/// The archive at a place where nothing is yet; a directory is made.
pub(crate) fn new_archive(place: &str) -> Result<Box<dyn Archive>> {
    if !place.contains("://") {
        std::fs::create_dir_all(place).with_context(|| format!("cannot make the directory {place}"))?;
    }
    archive(place)
}

/// A bar on stderr for the bytes copied; nothing where that is no terminal.
pub(crate) fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {binary_bytes} copied, {binary_bytes_per_sec}");
    ProgressBar::no_length().with_style(style.expect("the template is well-formed"))
}

/// A store of objects.
struct ObjectArchive {
    url: String,
    store: Box<dyn ObjectStore>,
    prefix: ObjectPath,
    runtime: Runtime,
}

impl ObjectArchive {
    fn open(url: &str) -> Result<Self> {
        let parsed = url.parse().with_context(|| format!("{url} is no URL"))?;
        let (store, prefix) = object_store::parse_url_opts(&parsed, std::env::vars()).with_context(|| {
            format!("no store at {url}: has this program been built with `--features cloud`, or is it a directory?")
        })?;
        Self::new(url, store, prefix)
    }

    fn new(url: &str, store: Box<dyn ObjectStore>, prefix: ObjectPath) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { url: url.to_owned(), store, prefix, runtime })
    }

    fn path(&self, name: &str) -> ObjectPath {
        self.prefix.clone().join(name)
    }

    /// Sends the parts of an object. Without the last step of an upload a store keeps nothing.
    async fn send(&self, upload: &mut dyn MultipartUpload, content: &mut Pieces<'_>) -> io::Result<()> {
        let mut part = Vec::new();
        for piece in content {
            part.extend_from_slice(&piece?);
            if part.len() >= PART_BYTES {
                upload.put_part(PutPayload::from(std::mem::take(&mut part))).await?;
            }
        }
        upload.put_part(PutPayload::from(part)).await?;
        upload.complete().await?;
        Ok(())
    }
}

impl Archive for ObjectArchive {
    fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.url.trim_end_matches('/'))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.runtime.block_on(async {
            let objects: Vec<_> = self.store.list(Some(&self.prefix)).try_collect().await?;
            let names = objects.iter().filter_map(|object| object.location.prefix_match(&self.prefix));
            Ok(names
                .map(|parts| parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/"))
                .collect())
        })
    }

    fn put(&self, name: &str, content: &mut Pieces<'_>) -> io::Result<()> {
        self.runtime.block_on(async {
            let mut upload = self.store.put_multipart(&self.path(name)).await?;
            let sent = self.send(&mut *upload, content).await;
            if sent.is_err() {
                // Parts that are left behind cost space; the error that counts is the first.
                let _ = upload.abort().await;
            }
            sent
        })
    }

    fn get(&self, name: &str, piece: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.runtime.block_on(async {
            let mut stream = self.store.get(&self.path(name)).await?.into_stream();
            while let Some(bytes) = stream.try_next().await? {
                piece(&bytes)?;
            }
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.runtime.block_on(async { Ok(self.store.delete(&self.path(name)).await?) })
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    fn content(archive: &ObjectArchive, name: &str) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        archive.get(name, &mut |piece| {
            content.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(content)
    }

    #[test]
    fn a_store_of_objects_keeps_files_whole_or_not_at_all() {
        let store = Box::new(InMemory::new());
        let archive = ObjectArchive::new("memory:///a/b/", store, ObjectPath::from("a/b")).expect("a store");
        let long: Vec<u8> = (0..PART_BYTES + 4321).map(|at| (at % 251) as u8).collect();
        let mut pieces = long.chunks(1 << 20).map(|piece| Ok(piece.to_vec()));
        archive.put("log-1", &mut pieces).expect("kept");
        archive.put("empty", &mut std::iter::empty()).expect("kept");
        let broken = [Ok(vec![1]), Err(io::Error::other("a disk that fails"))];
        let error = archive.put("log-2", &mut broken.into_iter()).expect_err("a piece failed");
        assert!(error.to_string().contains("a disk that fails"), "{error}");

        let mut names = archive.list().expect("listed");
        names.sort();
        assert_eq!(names, ["empty", "log-1"]);
        assert!(content(&archive, "log-1").expect("kept") == long);
        assert!(content(&archive, "empty").expect("kept").is_empty());
        let missing = content(&archive, "log-2").expect_err("never whole");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        archive.remove("empty").expect("removed");
        assert_eq!(archive.list().expect("listed"), ["log-1"]);
        assert_eq!(archive.place("log-1"), "memory:///a/b/log-1");
    }
}
