package config

import (
	"crypto/tls"
	"crypto/x509"
	"slices"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// tls loads the certificates of an upstream.
func (u *upstreams) tls(from *upstreamForm, targets []Target) UpstreamTLS {
	f := &from.TLS
	secure := func(t Target) bool { return t.URL.Scheme == "https" }
	if *f != (upstreamTLSForm{}) && !slices.ContainsFunc(targets, secure) && u.Valid(&from.Targets) {
		u.Wrong(f, "no target is https", "write https:// in their URLs, or leave tls out")
	}
	return u.trust(trustForm{&f.CA, &f.Cert, &f.Key, &f.ServerName})
}

// A trustForm refers to the fields with CAs and the client certificate.
type trustForm struct{ ca, cert, key, serverName *string }

// trust loads CAs and the client certificate.
func (r *loader) trust(f trustForm) UpstreamTLS {
	made := UpstreamTLS{ServerName: *f.serverName}
	if made.ServerName != "" && !form.IsHost(made.ServerName) {
		r.Wrong(f.serverName, form.Quote(made.ServerName)+" is not the name of a server", "write for example api.example.com")
	}
	if data, ok := r.attach(f.ca, maxAttached); ok {
		made.Roots = x509.NewCertPool()
		if !made.Roots.AppendCertsFromPEM(data) {
			r.Wrong(f.ca, "there is no certificate in this file", "name a file with -----BEGIN CERTIFICATE-----")
		}
	}
	switch {
	case *f.cert == "" && *f.key != "":
		r.Wrong(f.key, "there is a key and no certificate", "write cert: beside it")
	case *f.cert != "" && *f.key == "":
		r.Wrong(f.cert, "there is a certificate and no key", "write key: beside it")
	default:
		made.Certificate = r.pair(f.cert, f.key)
	}
	return made
}

// pair loads a certificate and its private key; nil if there is none.
func (r *loader) pair(cert, key *string) *tls.Certificate {
	shown, ok := r.attach(cert, maxAttached)
	private, also := r.attach(key, maxAttached)
	if !ok || !also {
		return nil
	}
	pair, err := tls.X509KeyPair(shown, private)
	if err != nil {
		// The error names neither the files' content nor their place.
		r.Wrong(cert, "certificate and key do not match: "+err.Error(), "name PEM files that belong together")
		return nil
	}
	return &pair
}
