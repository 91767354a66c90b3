//! Pairs that end by themselves, in tables made with [`ValueKind::expiring`].
//!
//! [`ValueKind::expiring`]: crate::ValueKind::expiring

use std::time::Duration;

use farsight_client::{Lifetime, ReadError, WriteError};
use farsight_protocol::WriteOutcome;

use crate::{KeyType, Session};

impl<K: KeyType + ?Sized> Session<K> {
    /// [`Session::put`] of a pair that stays so long, in whole milliseconds.
    ///
    /// ```
    /// # use farsight::{Lifetime, Options, Server, TableOptions, ValueKind};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let socket = directory.path().join("example.sock");
    /// # let server = Server::builder().socket(&socket).table_memory_bytes(64 << 20).start()?;
    /// # let client = farsight::connect(&server.url().to_string())?;
    /// // Pairs stay a day, unless their writer says otherwise.
    /// let day_ms = 24 * 3600 * 1000;
    /// let tokens = client.create_table_of::<u64>(
    ///     "tokens", ValueKind::BLOCKS.expiring(day_ms), &TableOptions::default())?;
    /// let mut tokens = tokens.session(Options::default())?;
    /// tokens.put_for(1, b"short", Duration::ZERO)?;
    /// tokens.put(2, b"a day")?;
    /// assert!(tokens.get(1)?.is_none() && tokens.get(2)?.is_some());
    /// tokens.set_time_to_live(2, Lifetime::Endless)?;
    /// assert_eq!(tokens.time_to_live(2)?, Some(Lifetime::Endless));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WriteError`]; [`WriteError::NoDeadlines`] in a table whose pairs have none.
    pub fn put_for(
        &mut self,
        key: K::Ref<'_>,
        value: &[u8],
        stays: Duration,
    ) -> Result<WriteOutcome, WriteError> {
        let before = self.lifetime();
        self.set_lifetime(Lifetime::For(stays))?;
        let done = self.put(key, value);
        self.set_lifetime(before)?;
        done
    }

    /// Lets all pairs stay so long that this session writes from now on, by whatever operation. At first that
    /// is as long as the table says. A sum ([`Session::fetch_add`]) keeps the deadline of the pair that was
    /// there.
    ///
    /// # Errors
    /// [`WriteError::NoDeadlines`] in a table whose pairs have none, unless it is [`Lifetime::OfTable`].
    pub fn set_lifetime(&mut self, lifetime: Lifetime) -> Result<(), WriteError> {
        self.inner.set_lifetime(lifetime)
    }

    /// How long pairs stay that this session writes.
    #[must_use]
    pub fn lifetime(&self) -> Lifetime {
        self.inner.lifetime()
    }

    /// How long the pair of `key` stays from now on; `None` if the key is absent.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn time_to_live(&mut self, key: K::Ref<'_>) -> Result<Option<Lifetime>, ReadError> {
        self.inner.time_to_live(K::encoded(key))
    }

    /// Lets the pair of `key` stay so long from now on; its value stays as it is. False if the key is absent.
    /// The pair gets another version. This is a GET and a compare-and-set by version, again if others write
    /// the key meanwhile.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn set_time_to_live(&mut self, key: K::Ref<'_>, stays: Lifetime) -> Result<bool, WriteError> {
        self.inner.set_time_to_live(K::encoded(key), stays)
    }

    /// How wrong this client may be about the servers' clocks. A pair may be returned so much later than at
    /// its deadline, or left out so much sooner. `None` if pairs have no deadlines.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn clock_error(&mut self) -> Result<Option<Duration>, ReadError> {
        self.inner.clock_error()
    }
}
