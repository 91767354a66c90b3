//! Calls to whichever member of an etcd answers.
//!
//! Invariant: a call ends within [`WAIT_MAX`], and is repeated only where that does no harm. What is written
//! is conditional or the same each time, and a lease that nobody has heard of ends by itself.
//!
//! Protocol: one connection, to the member that answered last. A member that does not answer, or has no
//! leader, is left for the next one, in turn. With a user each connection proves who it is first, so a token
//! that has ended costs a new connection.
//!
//! The few calls that are used are written here, over the gRPC of the crate tonic. Crates with all of etcd's
//! interface want protoc, a program, wherever this one is built.

use std::error::Error;
use std::time::{Duration, Instant};

use farsight_base::report::with_causes;
use prost::Message;
use tokio::time::{sleep, timeout};
use tokio_stream::Stream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming, client::Grpc};
use tonic_prost::ProstCodec;

use super::messages::{AuthenticateRequest, AuthenticateResponse};
use crate::{ClusterError, ClusterUrl};

/// The longest that a call may take, over all members.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(5);
/// The longest that one member may take.
pub(super) const MEMBER_WAIT_MAX: Duration = Duration::from_secs(2);
/// From one attempt to the next.
const PAUSE: Duration = Duration::from_millis(50);
/// How often an idle connection asks its member for a sign of life: more than one in 5 s is abuse to etcd.
const ALIVE_PAUSE: Duration = Duration::from_secs(6);
/// Bytes of a response at most: all keys of a pool are less.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// The calls of one etcd.
pub(super) struct Calls {
    url: ClusterUrl,
    connection: Option<Connected>,
    /// Which member is asked next.
    member: usize,
}

/// A connection to one member.
#[derive(Clone)]
pub(super) struct Connected {
    channel: Channel,
    /// Proves who this is.
    token: Option<MetadataValue<Ascii>>,
}

/// How a question goes, by the path of its method.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// By itself.
    Unary(&'static str),
    /// As the only one of a stream.
    Stream(&'static str),
}

/// A call that has not been answered as it should.
pub(super) enum Failure {
    /// There is no such lease.
    NoLease,
    /// All else.
    Cluster(ClusterError),
}

impl Connected {
    async fn to(endpoint: &str, user: Option<(&str, &str)>) -> Result<Self, Status> {
        let way = Endpoint::from_shared(format!("http://{endpoint}")).map_err(|error| unreachable(&error))?;
        let way = way.connect_timeout(MEMBER_WAIT_MAX).keep_alive_while_idle(true);
        let way = way.http2_keep_alive_interval(ALIVE_PAUSE).keep_alive_timeout(MEMBER_WAIT_MAX);
        let channel = way.connect().await.map_err(|error| unreachable(&error))?;
        let mut connected = Self { channel, token: None };
        if let Some((name, password)) = user {
            let request = AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
            let answered = connected.unary("/etcdserverpb.Auth/Authenticate", request).await?;
            let AuthenticateResponse { token } = answered;
            connected.token = Some(token.parse().map_err(|_| Status::internal("a token that is no text"))?);
        }
        Ok(connected)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        // A member without a leader fails then, instead of going silent.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        request
    }

    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(RESPONSE_BYTES_MAX)
    }

    /// One question, one answer.
    pub(super) async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| unreachable(&error))?;
        let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::default());
        Ok(grpc.unary(self.request(request), path, codec).await?.into_inner())
    }

    /// Questions without end, and answers.
    pub(super) async fn streaming<Q, A>(
        &self,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| unreachable(&error))?;
        let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::default());
        Ok(grpc.streaming(self.request(requests), path, codec).await?.into_inner())
    }
}

impl Calls {
    pub(super) fn to(url: ClusterUrl) -> Self {
        Self { url, connection: None, member: 0 }
    }

    /// A connection to a member that has answered lately, or one that is new.
    pub(super) async fn connected(&mut self) -> Result<Connected, Status> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let connection = Connected::to(&self.url.endpoints()[self.member], self.url.user()).await?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Asks until a member answers or refuses.
    pub(super) async fn call<Q, A>(&mut self, way: Way, request: Q) -> Result<A, Failure>
    where
        Q: Message + Clone + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let begun = Instant::now();
        loop {
            let left = WAIT_MAX.saturating_sub(begun.elapsed());
            let done = timeout(left.min(MEMBER_WAIT_MAX), self.call_once(way, request.clone())).await;
            let status = match done {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) if is_final(status.code()) => return Err(self.refused(&status)),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded(format!("no answer for {MEMBER_WAIT_MAX:?}")),
            };
            let endpoint = self.url.endpoints()[self.member].clone();
            self.leave();
            let waited = begun.elapsed();
            if waited + PAUSE >= WAIT_MAX {
                let why = format!("{endpoint}: {}", text(&status));
                let endpoints = self.url.endpoints().join(", ");
                return Err(Failure::Cluster(ClusterError::Unreachable { endpoints, why, waited }));
            }
            sleep(PAUSE).await;
        }
    }

    async fn call_once<Q, A>(&mut self, way: Way, request: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let connected = self.connected().await?;
        match way {
            Way::Unary(path) => connected.unary(path, request).await,
            Way::Stream(path) => {
                let mut answers = connected.streaming(path, tokio_stream::once(request)).await?;
                let answer = answers.message().await?;
                answer.ok_or_else(|| Status::unavailable("a stream that ended without an answer"))
            }
        }
    }

    /// The next attempt is another member's.
    pub(super) fn leave(&mut self) {
        self.connection = None;
        self.member = (self.member + 1) % self.url.endpoints().len();
    }

    fn refused(&self, status: &Status) -> Failure {
        if status.code() == Code::NotFound {
            return Failure::NoLease;
        }
        let endpoint = self.url.endpoints()[self.member].clone();
        Failure::Cluster(ClusterError::Refused { endpoint, why: text(status) })
    }
}

/// Refusals that another member, or another time, does not change.
fn is_final(code: Code) -> bool {
    use Code::{
        AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, OutOfRange, PermissionDenied,
        ResourceExhausted, Unimplemented,
    };
    matches!(
        code,
        AlreadyExists
            | FailedPrecondition
            | InvalidArgument
            | NotFound
            | OutOfRange
            | PermissionDenied
            | ResourceExhausted
            | Unimplemented
    )
}

fn unreachable(error: &(dyn Error + 'static)) -> Status {
    Status::unavailable(with_causes(error))
}

fn text(status: &Status) -> String {
    if status.message().is_empty() { status.code().to_string() } else { status.message().to_owned() }
}
