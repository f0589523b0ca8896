package config

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// ineffective warns of sections that change nothing, because what would use them is not
// configured. Whoever writes that as well, store: memory for example, knows it.
func (l *loader) ineffective(f *file) {
	for _, s := range []struct {
		given         bool
		at            any
		what, instead string
	}{
		{l.Given(&f.Redis) && !l.Given(&f.Store), &f.Redis, "redis is not used: store is memory, so each node counts for itself", "write store: redis, or leave redis out"},
		{l.Given(&f.ClientIP.Header) && len(f.ClientIP.TrustedProxies) == 0 && (f.ClientIP.Header != forwardedFor || !l.Given(&f.ClientIP.TrustedProxies)),
			&f.ClientIP.Header, "no proxy is trusted to send this field, so all clients behind a proxy share its address", "write trusted_proxies: with the networks of the proxies, or leave header out"},
		{l.Given(&f.Listen.TLS) && !l.Given(&f.Listen.HTTPS) && !l.Given(&f.Admin.HTTPS), &f.Listen.TLS, "nothing is served with TLS: there is no listen.https", "write https: \":8443\" beside it, or leave tls out"},
		{l.Given(&f.Alerts) && !l.Given(&f.Alerts.Webhook) && f.Alerts.Secret == "", &f.Alerts, "no alert is sent: there is no webhook", "write webhook: with a URL, or leave alerts out"},
		{l.Given(&f.Traces) && !l.Given(&f.Traces.Endpoint), &f.Traces, "nothing is traced: there is no endpoint", "write endpoint: with the URL of a collector, or leave traces out"},
	} {
		if s.given {
			l.Warn(s.at, s.what, s.instead)
		}
	}
	if l.Given(&f.Defaults.OnStoreFailure) {
		l.warnNoStore(&f.Defaults.OnStoreFailure, Store(f.Store))
	}
}

// unused remarks keys that nothing refers to, and warns of a section jwt without a key from a token.
func (k *keys) unused(jwt *jwtForm) {
	for _, name := range slices.Sorted(maps.Keys(k.forms)) {
		if !k.used[name] {
			k.remark(k.forms[name], "nothing uses this key", "name it as key: of a limit or list, or leave it out")
		}
	}
	if k.tokens != nil && !k.signed {
		k.Warn(jwt, "no token is verified: no key is read from one", "write key: jwt:CLAIM of a limit, or leave jwt out")
	}
}

// unconverted warns of an alert about the conversion of limits without a limit that has one.
func (l *loader) unconverted(f *alertsForm, routes []*Route) {
	returns := func(l *Limit) bool { return l.Return != nil && l.Mode != Off }
	if l.Given(&f.Conversion) && !slices.ContainsFunc(routes, func(r *Route) bool { return slices.ContainsFunc(r.Limits, returns) }) {
		l.Warn(&f.Conversion, "no alert about it is sent: no limit has return_on", "write return_on: {route: NAME, key: KEY} beside a limit, or leave conversion out")
	}
}

// forwardedFor is the default of client_ip.header.
const forwardedFor = "X-Forwarded-For"

// isSetByProxies reports whether a header field, by its canonical name, is one that proxies and
// CDNs set to describe the client. Whoever reaches Weir past them can send any value.
func isSetByProxies(name string) bool {
	names := []string{"Forwarded", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "X-Original-Forwarded-For", "X-Envoy-External-Address", "X-Azure-Clientip", "X-Appengine-User-Ip"}
	prefixes := []string{"X-Forwarded-", "Cf-", "Cloudfront-", "Fastly-Client-", "Fly-Client-"}
	return slices.Contains(names, name) || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// warnForged warns of a key that clients can forge.
func (k *keys) warnForged(pointer any, from key.Origin) {
	if from.Source.IsField() && isSetByProxies(from.Name) {
		k.Warn(pointer, "a client that does not come through your proxy can send any value in "+from.Name+", and so escape the limit", "use client_ip with client_ip.trusted_proxies, or let nobody but the proxy reach Weir")
	}
}

// warnItself warns of an upstream that is a listener of this Weir.
func (u *upstreams) warnItself(pointer any, to *url.URL) {
	target := address{to.Hostname(), to.Port()}
	if target.port == "" {
		target.port = map[string]string{"http": "80", "https": "443"}[to.Scheme]
	}
	for _, own := range []struct{ name, addr string }{{"listen.http", u.served.HTTP}, {"listen.https", u.served.HTTPS}} {
		at := parseAddress(listenAddress(own.addr))
		if at.port != "" && at.port == target.port && (at.host == target.host || target.loopback() && at.meets(target)) {
			u.Warn(pointer, "this is Weir itself, its "+own.name+": every request would come back and end with 508", "write the address of the server behind Weir")
		}
	}
}

// warnRedundant warns of rates of a limit that never refuse, because another lets no more pass in their window.
func (l *limits) warnRedundant(limit *Limit) {
	for _, read := range l.read {
		for i, r := range read.rates {
			for _, other := range read.rates {
				windows := limit.windowsIn(r.Window, other)
				switch {
				case other == r || windows == 0 || r.Count/other.Count < windows:
					continue
				case windows == 1 && other.Window >= r.Window:
					l.Warn(read.texts[i], limit.RateText(r)+" never applies: "+limit.RateText(other)+" allows no more, in a longer time", "leave it out, or write a smaller count")
				default:
					most := limit.RateText(limiter.Rate{Count: windows * other.Count, Window: r.Window})
					l.Warn(read.texts[i], limit.RateText(r)+" is never reached: "+limit.RateText(other)+" is at most "+most, "leave it out, or write less than "+most)
				}
				break
			}
		}
	}
}

// windowsIn returns how often a limit lets the count of a rate pass within a window at the most; 0 if that is not known.
func (l *Limit) windowsIn(window time.Duration, of limiter.Rate) int64 {
	windows := int64((window + of.Window - 1) / of.Window)
	switch {
	case of.Window >= window:
		return 1
	case l.Algorithm.HasConversion() || l.Penalty != nil: // which has the longest window
		return 0
	case l.Algorithm.HasBurst():
		return windows + max(1, (l.Burst+of.Count-1)/of.Count)
	case l.Algorithm.MayDouble():
		return windows + 1
	}
	return windows
}

// warnNoStore warns of a policy for an outage of the store, at pointer, without a store that could have one.
func (l *loader) warnNoStore(pointer *string, store Store) {
	if *pointer == string(Deny) && store == StoreMemory {
		l.Warn(pointer, "nothing is ever denied by it: with store: memory there is no store that could fail", "write store: redis, or leave it out")
	}
}

// scopeNote names the limits that say per_client, which is the old name of per_instance.
func (c *Config) scopeNote() string {
	var names []string
	add := func(route string, l *limitForm) {
		if l.Scope == limiter.OldPerClient {
			names = append(names, LimitName(route, l.Name))
		}
	}
	for _, name := range form.SortedKeys(c.form.Limits) {
		add("", c.form.Limits[name])
	}
	for _, r := range c.form.Routes {
		for _, l := range r.Limits {
			add(r.Name, l)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "scope: " + limiter.OldPerClient + " is the old name of " + limiter.PerClient.String() + ", which counts for each instance of Weir; write that at " + strings.Join(names, ", ")
}
