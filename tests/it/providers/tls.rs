//! A way to a provider as companies have it: an HTTP proxy on loopback, and behind it TLS with a CA of their own.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How long a direction is listened to before it is the other one's turn.
const TURN: Duration = Duration::from_millis(2);

/// A proxy that takes `CONNECT`, ends the TLS behind it, and passes what comes to a plain server.
pub struct Way {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    closing: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Way {
    /// To the server at `plain` (`http://127.0.0.1:PORT…`), for whoever asks for `host`. Writes the CA's certificate.
    pub fn start(host: &str, plain: &str, ca_file: &Path) -> Way {
        let port: u16 = plain.rsplit(':').next().and_then(|rest| rest.split('/').next()?.parse().ok()).expect("a port");
        let config = Arc::new(certified(host, ca_file));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let closing: Arc<AtomicBool> = Arc::default();
        let (heard, flag) = (asked.clone(), closing.clone());
        let accepting = std::thread::spawn(move || {
            let mut serving = Vec::new();
            for stream in listener.incoming() {
                if flag.load(Ordering::Acquire) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let (config, heard, flag) = (config.clone(), heard.clone(), flag.clone());
                // What a client that goes away leaves undone is its own business.
                serving.push(std::thread::spawn(move || drop(serve(stream, port, config, &heard, &flag))));
            }
            for thread in serving {
                thread.join().expect("no panic in the proxy");
            }
        });
        Way { address, asked, closing, accepting: Some(accepting) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The first lines of what the proxy was asked.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        // The listener looks at the flag when somebody comes.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.accepting.take() {
            drop(thread.join());
        }
    }
}

/// A server certificate for `host`, signed by a CA that nobody knows.
fn certified(host: &str, ca_file: &Path) -> ServerConfig {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_key = KeyPair::generate().expect("a key");
    let ca = params.self_signed(&ca_key).expect("a CA");
    std::fs::write(ca_file, ca.pem()).expect("the CA's file");
    let issuer = Issuer::new(params, ca_key);
    let key = KeyPair::generate().expect("a key");
    let server = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
    let certificate = server.signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a configuration")
}

fn serve(
    mut client: TcpStream,
    port: u16,
    config: Arc<ServerConfig>,
    asked: &Mutex<Vec<String>>,
    closing: &AtomicBool,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(line.clone());
    if !line.starts_with("CONNECT ") {
        return client.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut plain = TcpStream::connect(("127.0.0.1", port))?;
    client.set_read_timeout(Some(TURN))?;
    plain.set_read_timeout(Some(TURN))?;
    let mut client = StreamOwned::new(connection, client);
    let mut buffer = vec![0; 16 << 10];
    while !closing.load(Ordering::Acquire) {
        if pass(&mut client, &mut plain, &mut buffer)? || pass(&mut plain, &mut client, &mut buffer)? {
            break;
        }
    }
    client.conn.send_close_notify();
    client.flush()
}

/// Passes on what is there. True at the end of it.
fn pass(from: &mut impl Read, to: &mut impl Write, buffer: &mut [u8]) -> std::io::Result<bool> {
    match from.read(buffer) {
        Ok(0) => Ok(true),
        Ok(read) => {
            to.write_all(&buffer[..read])?;
            to.flush()?;
            Ok(false)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
        Err(error) => Err(error),
    }
}
