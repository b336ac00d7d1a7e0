// OpenSSL's headers, and functions for its macros, which Swift does not import.

#ifndef COPENSSL_SHIM_H
#define COPENSSL_SHIM_H

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

// SSL_OP_… are casts, and most setters of contexts are macros.

/// Renegotiation and compression off; an end without close_notify is an error, whatever openssl.cnf says. Returns 1 on success.
static inline int copenssl_prepare(SSL_CTX *context, int minimum_version, int maximum_version) {
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_clear_options(
        context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION | SSL_OP_LEGACY_SERVER_CONNECT
                     | SSL_OP_ALLOW_CLIENT_RENEGOTIATION);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return SSL_CTX_set_min_proto_version(context, minimum_version) && SSL_CTX_set_max_proto_version(context, maximum_version);
}

static inline void copenssl_disable_session_cache(SSL_CTX *context) { SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF); }
static inline int copenssl_set_server_name(SSL *connection, const char *name) { return (int)SSL_set_tlsext_host_name(connection, name); }

/// Every new session of a client is given to `remember`, which OpenSSL's own cache does not hold.
static inline void copenssl_remember_sessions(SSL_CTX *context, int (*remember)(SSL *, SSL_SESSION *)) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, remember);
}

static inline int copenssl_accept_server_name(SSL *connection, int *alert, void *unused) {
    (void)connection, (void)alert, (void)unused;
    return SSL_TLSEXT_ERR_OK;
}
/// A server keeps the name that a client asks for with the session only if a callback has accepted it.
static inline void copenssl_accept_server_names(SSL_CTX *context) {
    SSL_CTX_set_tlsext_servername_callback(context, copenssl_accept_server_name);
}

static inline void copenssl_ignore_missing_close_notify(SSL *connection) { SSL_set_options(connection, SSL_OP_IGNORE_UNEXPECTED_EOF); }
static inline int copenssl_ignores_missing_close_notify(SSL *connection) { return (SSL_get_options(connection) & SSL_OP_IGNORE_UNEXPECTED_EOF) != 0; }
static inline int copenssl_session_was_resumed(SSL *connection) { return SSL_session_reused(connection); }

typedef STACK_OF(X509) copenssl_chain;
static inline copenssl_chain *copenssl_chain_new(void) { return sk_X509_new_null(); }
/// Takes over the certificate; returns 0 without memory.
static inline int copenssl_chain_push(copenssl_chain *chain, X509 *certificate) { return sk_X509_push(chain, certificate); }
static inline void copenssl_chain_free(copenssl_chain *chain) { sk_X509_pop_free(chain, X509_free); }

/// What follows ERR_GET_LIB and ERR_GET_REASON, which are functions in some versions and macros in others.
static inline int copenssl_error_library(unsigned long code) { return ERR_GET_LIB(code); }
static inline int copenssl_error_reason(unsigned long code) { return ERR_GET_REASON(code); }

/// As RFC 2253 writes a name, with characters outside ASCII as they are.
static inline int copenssl_print_name(BIO *text, const X509_NAME *name) {
    return X509_NAME_print_ex(text, name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB);
}

static inline void copenssl_set_retry_read(BIO *bio) { BIO_set_retry_read(bio); }
static inline void copenssl_clear_retry(BIO *bio) { BIO_clear_retry_flags(bio); }

#endif
