package config

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// tls loads the certificates of an upstream.
func (u *upstreams) tls(from *Upstream, targets []Target) UpstreamTLS {
	f := &from.Files
	secure := func(t Target) bool { return t.URL.Scheme == "https" }
	if *f != (upstreamTLSForm{}) && !slices.ContainsFunc(targets, secure) && u.Valid(&from.Servers) {
		u.Wrong(f, "no target is https", "write https:// in their URLs, or leave tls out")
	}
	return u.trust(trustForm{&f.CA, &f.Cert, &f.Key, &f.ServerName})
}

// A trustForm refers to the fields with CAs and the client certificate.
type trustForm struct{ ca, cert, key, serverName *string }

// trust loads CAs and the client certificate.
func (l *loader) trust(f trustForm) UpstreamTLS {
	made := UpstreamTLS{ServerName: *f.serverName}
	if made.ServerName != "" && !form.IsHost(made.ServerName) {
		l.Wrong(f.serverName, form.Quote(made.ServerName)+" is not the name of a server", "write for example api.example.com")
	}
	_, made.Roots = l.authorities(f.ca)
	if !l.refuseFirst([]finding{
		{*f.cert == "" && *f.key != "", f.key, "there is a key and no certificate", "write cert: beside it"},
		{*f.cert != "" && *f.key == "", f.cert, "there is a certificate and no key", "write key: beside it"},
	}) {
		made.Certificate = l.pair(f.cert, f.key)
	}
	return made
}

// authorities loads the file of authorities that a field names, in PEM; the pool is nil if there is none.
func (l *loader) authorities(name *string) (data string, pool *x509.CertPool) {
	text, ok := l.attach(name, maxAttached)
	if !ok {
		return "", nil
	}
	pool = x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		l.Wrong(name, "there is no certificate in this file", "name a file with -----BEGIN CERTIFICATE-----")
	}
	return string(text), pool
}

// pair loads a certificate and its private key; nil if there is none.
func (l *loader) pair(cert, key *string) *tls.Certificate {
	shown, ok := l.attach(cert, maxAttached)
	private, also := l.attach(key, maxAttached)
	if !ok || !also {
		return nil
	}
	pair, err := tls.X509KeyPair(shown, private)
	if err != nil {
		// The error names neither the files' content nor their place.
		l.Wrong(cert, "certificate and key do not match: "+err.Error(), "name PEM files that belong together")
		return nil
	}
	return &pair
}

// The challenge types (RFC 8555 section 8.3, RFC 8737).
const (
	challengeHTTP = "http-01"
	challengeALPN = "tls-alpn-01"
)

// acme compiles the ACME section; nil if there is none.
func (l *loader) acme(f *Listen) *ACME {
	if f.Files == nil || f.Files.ACME == nil {
		return nil
	}
	a := f.Files.ACME
	plain := listenAddress(f.HTTP) != ""
	to, err := url.Parse(a.Directory) // requests signed with the account key are sent there
	l.refuse([]finding{
		{l.Valid(&a.Directory) && (err != nil || to.Scheme != "https" || to.Host == "" || to.User != nil), &a.Directory,
			"is not an https URL", "write for example https://acme-v02.api.letsencrypt.org/directory"},
		{a.Email != "" && !strings.Contains(strings.Trim(a.Email, "@"), "@"), &a.Email, "is not an email address", "write for example ops@example.com"},
		{!plain && len(a.Challenges) == 1 && a.Challenges[0] == challengeHTTP, &a.Challenges,
			challengeHTTP + " needs listen.http, which is none", "write " + challengeALPN + ", or an address in listen.http"},
	})
	if listenAddress(f.HTTPS) != "" { // certificates are used by HTTPS only
		l.outputs = append(l.outputs, output{named{at: l.Location(&a.Storage), path: l.relative(a.Storage)}, true})
	}
	made := *a
	any := len(a.Challenges) == 0
	made.Domains, made.CA, made.Storage, made.Challenges = l.domains(a), l.opens(&a.CA), l.relative(a.Storage), nil
	made.HTTP = plain && (any || slices.Contains(a.Challenges, challengeHTTP))
	made.ALPN = any || slices.Contains(a.Challenges, challengeALPN)
	return &made
}

// domains returns the names of a without duplicates.
func (l *loader) domains(a *ACME) []string {
	var names []string
	for i := range a.Domains {
		at, name := &a.Domains[i], strings.ToLower(strings.TrimSuffix(a.Domains[i], "."))
		_, notAddress := netip.ParseAddr(name)
		if l.Valid(at) && !l.refuseFirst([]finding{
			{strings.HasPrefix(name, "*."), at, "a wildcard name needs a DNS challenge, which is not supported", "write each name, or name the files that another ACME client writes in cert and key"},
			{notAddress == nil || !form.IsHostname(name) || !strings.Contains(name, "."), at, form.Quote(name) + " is not a public domain name", "write for example api.example.com"},
			{slices.Contains(names, name), at, form.Quote(name) + " is listed twice", "leave one out"},
		}) {
			names = append(names, name)
		}
	}
	return names
}
