package config

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
)

// tls reads the files of an upstream's certificates.
func (u *upstreams) tls(form *upstreamForm, targets []Target) UpstreamTLS {
	f := &form.TLS
	made := UpstreamTLS{ServerName: f.ServerName}
	if *f == (upstreamTLSForm{}) {
		return made
	}
	secure := func(t Target) bool { return t.URL.Scheme == "https" }
	if !slices.ContainsFunc(targets, secure) && u.sound(&form.Targets) {
		u.wrong(f, "no target is https", "write https:// in their URLs, or leave tls out")
	}
	if f.ServerName != "" && !isHost(f.ServerName) {
		u.wrong(&f.ServerName, quote(f.ServerName)+" is not the name of a server", "write for example api.example.com")
	}
	if data, ok := u.attach(&f.CA); ok {
		made.Roots = x509.NewCertPool()
		if !made.Roots.AppendCertsFromPEM(data) {
			u.wrong(&f.CA, "there is no certificate in this file", "name a file with -----BEGIN CERTIFICATE-----")
		}
	}
	switch {
	case f.Cert == "" && f.Key != "":
		u.wrong(&f.Key, "there is a key and no certificate", "write cert: beside it")
	case f.Cert != "" && f.Key == "":
		u.wrong(&f.Cert, "there is a certificate and no key", "write key: beside it")
	default:
		made.Certificate = u.pair(&f.Cert, &f.Key)
	}
	return made
}

// pair reads a certificate and its private key; nil if there is none.
func (r *reading) pair(cert, key *string) *tls.Certificate {
	shown, ok := r.attach(cert)
	private, also := r.attach(key)
	if !ok || !also {
		return nil
	}
	pair, err := tls.X509KeyPair(shown, private)
	if err != nil {
		// The error names neither the files' content nor their place.
		r.wrong(cert, "certificate and key do not make a pair: "+err.Error(), "name PEM files that belong together")
		return nil
	}
	return &pair
}
