//! Texts that users type or peers send: server addresses, and names of tables.

use farsight::ServerUrl;
use farsight_protocol::{TABLE_NAME_BYTES_MAX, check_table_name};

pub(super) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(url) = text.parse::<ServerUrl>() {
        assert_eq!(url.to_string().parse().as_ref(), Ok(&url), "{url}");
        match &url {
            ServerUrl::Shm(path) => assert!(path.is_absolute(), "{url}"),
            ServerUrl::Tcp(endpoint) | ServerUrl::Rdma(endpoint) => {
                assert!(!endpoint.host.is_empty(), "{url}");
            }
        }
    }
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let is_good = plain && (1..=TABLE_NAME_BYTES_MAX).contains(&text.len());
    assert_eq!(check_table_name(&text).is_ok(), is_good, "{text:?}");
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "shm:///run/farsight.sock",
        "shm://x",
        "tcp://host:1",
        "rdma://",
        "tcp://[::1]:65535",
        "table_1-A",
        "shm:///a/../b",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}
