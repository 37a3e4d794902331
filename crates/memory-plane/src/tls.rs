//! TLS configurations of the server and of the push client, from PEM files.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Why a TLS configuration cannot be made. The cause is in the files that the caller names.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file has no valid certificates.
    #[error("cannot read certificates from {file}: {source}; write a PEM file")]
    Certificate {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// The file has no valid private key.
    #[error("cannot read a private key from {file}: {source}; write a PEM file")]
    Key {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// Certificate and key do not belong together.
    #[error("the certificate and the key do not match: {0}")]
    Pair(#[from] tokio_rustls::rustls::Error),
}

/// Returns an acceptor with the certificates and the key of these PEM files. It offers HTTP/2 and HTTP/1.1 by ALPN.
///
/// # Errors
/// Returns an error if the files cannot be read or do not belong together.
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

/// Returns an acceptor as [`acceptor`] does, which offers HTTP/1.1 only.
///
/// # Errors
/// Returns an error if the files cannot be read or do not belong together.
pub fn http1_acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let both = acceptor(certificates, key)?;
    let mut config = ServerConfig::clone(both.config());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns a connector that trusts the certificate authorities in this PEM file.
///
/// # Errors
/// Returns an error if the file cannot be read or has no usable certificate.
pub fn connector(roots_file: &Path) -> Result<TlsConnector, TlsError> {
    let mut roots = RootCertStore::empty();
    // A host's own list may contain certificates that rustls rejects; they are skipped.
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
