package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/view"
)

// An address is host:port; the host is empty for all addresses of the machine.
// The zero address is one that has a problem.
type address struct{ host, port string }

// listen makes the bounds of what clients may do.
func (l *loader) listen(f, made *Listen) {
	const least, most, leastBuffered = 1 << 10, 16 << 20, 1 << 20
	l.refuse([]finding{
		{l.Valid(&f.MaxHeader) && (f.MaxHeader < least || f.MaxHeader > most), &f.MaxHeader, f.MaxHeader.String() + " is out of range", "write 1KiB to 16MiB"},
		{l.Valid(&f.MaxBuffered) && f.MaxBuffered < leastBuffered, &f.MaxBuffered, f.MaxBuffered.String() + " is out of range", "write 1MiB or more, for example 128MiB"},
	})
	l.warnTrust(f.ProxyProtocol)
	made.HTTP, made.HTTPS, made.Decide = unlessNone(f.HTTP), unlessNone(f.HTTPS), l.decide(f.Decide)
	made.Files, made.TLS, made.ACME = nil, l.pairs(f), l.acme(f)
}

// none is what is written for no address, no limit, no former secret and nothing of defaults.
const none = "none"

// unlessNone is text, or "" for none.
func unlessNone(text string) string {
	if text == none {
		return ""
	}
	return text
}

// pairs are the files of all certificates, the one for every client first.
func (l *loader) pairs(of *Listen) []Pair {
	f := of.Files
	if f == nil {
		return nil
	}
	pair := l.opensPair
	if unlessNone(of.HTTPS) == "" {
		pair = func(cert, key *string) Pair { return Pair{l.relative(*cert), l.relative(*key)} } // nobody is shown it
	}
	var pairs []Pair
	switch {
	case f.Cert != "" && f.Key != "":
		pairs = append(pairs, pair(&f.Cert, &f.Key))
	case f.Cert != "" || f.Key != "":
		l.Wrong(f, "cert and key belong together", "write both: cert: FILE, key: FILE")
	case f.ACME == nil && l.Valid(f):
		l.Wrong(f, "has no certificate", "write cert: FILE, key: FILE, or acme: {domains: [NAME]}")
	}
	return slices.Concat(pairs, view.Each(f.More, func(p *Pair) Pair { return pair(&p.Cert, &p.Key) }))
}

// relative is path, relative to the main file.
func (l *loader) relative(path string) string {
	if path == "" {
		return ""
	}
	return form.Within(cmp.Or(l.home, filepath.Dir(l.made.Files[0])), path)
}

// listeners checks that all listeners can stand side by side, that HTTPS has a
// certificate, and that the admin listeners are not open to everybody.
func (l *loader) listeners(f *Config) {
	l.address(&f.Listen.HTTP, unlessNone(f.Listen.HTTP))
	l.address(&f.Listen.HTTPS, unlessNone(f.Listen.HTTPS))
	admin := l.address(&f.Admin.HTTP, f.Admin.HTTP)
	adminSecure := l.address(&f.Admin.HTTPS, unlessNone(f.Admin.HTTPS))
	secure := unlessNone(f.Listen.HTTPS) != ""
	l.refuse([]finding{
		{f.Listen.HTTP == none && f.Listen.HTTPS == none && !f.Listen.Decide.listens() && l.Valid(&f.Listen.Decide), &f.Listen.HTTP, "there is no listener", "write an address here or in https"},
		{secure && !l.Given(&f.Listen.Files) && l.Valid(&f.Listen.HTTPS), &f.Listen.HTTPS, "has no certificate", "write tls: {cert: FILE, key: FILE} or tls: {acme: {domains: [NAME]}} beside it"},
		{adminSecure.port != "" && !secure && l.Valid(&f.Listen.HTTPS), &f.Admin.HTTPS,
			"has no certificate: it shows those of listen.https, and that is none", "write listen: {https: HOST:PORT, tls: ...} as well, or http on a loopback address here"},
		{f.Listen.RedirectHTTPS && !secure && len(f.ClientIP.TrustedProxies) == 0, &f.Listen.RedirectHTTPS,
			"there is no listen.https to redirect to", `write https: ":8443" and tls: beside it, or client_ip.trusted_proxies for a proxy that terminates TLS`},
	})
	l.warn([]finding{
		{!l.Given(&f.Listen.RedirectHTTPS) && l.Given(&f.Listen.HTTPSPort), &f.Listen.HTTPSPort, "nothing is redirected to this port", "write redirect_https: true beside it, or leave it out"},
		{f.Listen.RedirectHTTPS && secure && f.Listen.HTTP == none, &f.Listen.RedirectHTTPS, "there is no listen.http whose requests are redirected", "write http: \":8080\" beside it, or leave it out"},
	})
	l.besideEachOther(f)
	l.requireToken(&f.Admin.HTTP, admin, &f.Admin)
	l.requireToken(&f.Admin.HTTPS, adminSecure, &f.Admin)
}

// besideEachOther checks that no two listeners have the same address. The later field is reported.
func (l *loader) besideEachOther(f *Config) {
	places := []*string{&f.Listen.HTTP, &f.Listen.HTTPS, &f.Admin.HTTP, &f.Admin.HTTPS}
	if d := f.Listen.Decide; d.listens() {
		places = append(places, &d.HTTP, &d.GRPC)
	}
	for i, at := range places {
		for _, other := range places[:i] {
			if parseAddress(*at).clashes(parseAddress(*other)) {
				l.Wrong(at, "listens where "+l.Location(other).Path+" does", "use another port")
				if at == &f.Admin.HTTP {
					break // the two others stand in one section
				}
			}
		}
	}
}

// address checks that text is host:port. It says nothing of an empty text,
// which is a problem already, and never repeats the text: it may hold a
// password.
func (l *loader) address(pointer any, text string) address {
	if text == "" {
		return address{}
	}
	host, port, err := net.SplitHostPort(text)
	if l.refuseFirst([]finding{
		{err != nil || strings.Contains(text, "://"), pointer, "not host:port", meantAddress(l.Location(pointer).Path, l.Written.Text(pointer, text))},
		{port != "0" && !form.IsPort(port), pointer, "the port is not a number from 0 to 65535", "write for example 127.0.0.1:8080"},
		{host != "" && !form.IsHost(host), pointer, "the host is neither a name nor an address", "write for example 127.0.0.1:8080"},
	}) {
		return address{}
	}
	return address{host, port}
}

// meantAddress says what to write at path instead of text, which is no address: the address of a URL, of a port alone, or
// of a host alone. text has the names of variables, not their values, of which a part would be told.
func meantAddress(path, text string) string {
	host, port := exampleAddress(path)
	more := ""
	u, err := url.Parse(text)
	switch {
	case err == nil && form.IsHost(u.Hostname()):
		host, port = u.Hostname(), cmp.Or(u.Port(), port)
		if u.User != nil {
			more += ", and the user and the password of the URL in username: and password: beside it"
		}
		if u.Scheme == "rediss" {
			more += ", and tls: {enabled: true} beside it"
		}
	case form.IsPort(text):
		port = text
	case form.IsHost(text):
		host = text
	default:
		return "write for example " + net.JoinHostPort(host, port) + " or [::1]:" + port
	}
	return "write " + strconv.Quote(net.JoinHostPort(host, port)) + more
}

// parseAddress is text as an address; the zero address when it is none.
func parseAddress(text string) address {
	host, port, _ := net.SplitHostPort(text)
	return address{host, port}
}

// meets reports whether a and b, of one port, are one place or overlap.
func (a address) meets(b address) bool {
	return a.everywhere() || b.everywhere() || a.host == b.host || a.loopback() && b.loopback()
}

// clashes reports whether a and b cannot both be listened on.
func (a address) clashes(b address) bool {
	return a.port != "" && a.port == b.port && a.port != "0" && a.meets(b)
}

func (a address) everywhere() bool {
	ip, _ := netip.ParseAddr(a.host)
	return a.host == "" || ip.IsUnspecified()
}

func (a address) loopback() bool {
	ip, _ := netip.ParseAddr(a.host)
	return ip.Unmap().IsLoopback() || strings.EqualFold(a.host, "localhost")
}

// upstreamTLS loads the certificates of an upstream.
func (l *loader) upstreamTLS(from *Upstream, targets []Target) UpstreamTLS {
	f := &from.TLS
	secure := func(t Target) bool { return t.URL.Scheme == "https" }
	if *f != (UpstreamTLS{}) && !slices.ContainsFunc(targets, secure) && l.Valid(&from.Servers) {
		l.Wrong(f, "no target is https", "write https:// in their URLs, or leave tls out")
	}
	return l.trust(&f.CA, &f.Cert, &f.Key, &f.ServerName)
}

// trust loads CAs and the client certificate, which fields name.
func (l *loader) trust(ca, cert, key, serverName *string) UpstreamTLS {
	made := UpstreamTLS{ServerName: *serverName}
	if made.ServerName != "" && !form.IsHost(made.ServerName) {
		l.Wrong(serverName, form.Quote(made.ServerName)+" is not the name of a server", "write for example api.example.com")
	}
	_, made.Roots = l.authorities(ca)
	if !l.refuseFirst([]finding{
		{*cert == "" && *key != "", key, "there is a key and no certificate", "write cert: beside it"},
		{*cert != "" && *key == "", cert, "there is a certificate and no key", "write key: beside it"},
	}) {
		made.Certificate = l.pair(cert, key)
	}
	return made
}

// ClientConfig returns t for crypto/tls; nil if t is nil.
func (t *UpstreamTLS) ClientConfig() *tls.Config {
	if t == nil {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: t.Roots, ServerName: t.ServerName}
	if t.Certificate != nil {
		c.Certificates = []tls.Certificate{*t.Certificate}
	}
	return c
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
	plain := unlessNone(f.HTTP) != ""
	to, err := url.Parse(a.Directory) // requests signed with the account key are sent there
	l.refuse([]finding{
		{l.Valid(&a.Directory) && (err != nil || to.Scheme != "https" || to.Host == "" || to.User != nil), &a.Directory,
			"is not an https URL", "write for example https://acme-v02.api.letsencrypt.org/directory"},
		{a.Email != "" && !strings.Contains(strings.Trim(a.Email, "@"), "@"), &a.Email, "is not an email address", "write for example ops@example.com"},
		{!plain && len(a.Challenges) == 1 && a.Challenges[0] == challengeHTTP, &a.Challenges,
			challengeHTTP + " needs listen.http, which is none", "write " + challengeALPN + ", or an address in listen.http"},
	})
	if unlessNone(f.HTTPS) != "" { // certificates are used by HTTPS only
		l.made.outputs = append(l.made.outputs, named{at: l.Location(&a.Storage), path: l.relative(a.Storage), made: true})
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
			{notAddress == nil || !form.IsHostname(name) || !strings.Contains(name, "."), at, form.Quote(*at) + " is not a public domain name", "write for example api.example.com"},
			{slices.Contains(names, name), at, form.Quote(name) + " is listed twice", "leave one out"},
		}) {
			names = append(names, name)
		}
	}
	return names
}
