//! TLS, from a certificate and its key.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Why there is no TLS. All are the caller's files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificates.
    #[error("no certificates in {file}: {source}")]
    Certificate {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// The key.
    #[error("no private key in {file}: {source}")]
    Key {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// They do not fit.
    #[error("certificate and key: {0}")]
    Pair(#[from] tokio_rustls::rustls::Error),
}

/// Speak TLS with the certificates and the key in these files (PEM), and HTTP/2 with who can.
///
/// # Errors
/// They cannot be read or do not fit.
pub fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let chain = read_certificates(certificates)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::Key {
        file: key.display().to_string(),
        source,
    })?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Speak TLS with who is trusted by the certificates in this file (PEM).
///
/// # Errors
/// They cannot be read.
pub fn connector(roots_file: &Path) -> Result<TlsConnector, TlsError> {
    let mut roots = RootCertStore::empty();
    // A host's own list may have some that nobody takes any more.
    roots.add_parsable_certificates(read_certificates(roots_file)?);
    if roots.is_empty() {
        return Err(TlsError::Certificate {
            file: roots_file.display().to_string(),
            source: pem::Error::NoItemsFound,
        });
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| TlsError::Certificate {
            file: file.display().to_string(),
            source,
        })
}
