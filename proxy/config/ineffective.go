package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// ineffective warns of sections that change nothing, because what would use them is not
// configured. Whoever writes that as well, store: memory for example, knows it.
func (l *loader) ineffective(f *Config) {
	l.warn([]finding{
		{l.Given(&f.Redis) && !l.Given(&f.Store), &f.Redis, "redis is not used: store is memory, so each node counts for itself", "write store: redis, or leave redis out"},
		{l.Given(&f.ClientIP.Header) && len(f.ClientIP.TrustedProxies) == 0 && (f.ClientIP.Header != forwardedFor || !l.Given(&f.ClientIP.TrustedProxies)),
			&f.ClientIP.Header, "no proxy is trusted to send this field, so all clients behind a proxy share its address", "write trusted_proxies: with the networks of the proxies, or leave header out"},
		{l.Given(&f.Listen.Files) && !l.Given(&f.Listen.HTTPS) && !l.Given(&f.Admin.HTTPS), &f.Listen.Files,
			"nothing is served with TLS: there is no listen.https", "write https: \":8443\" beside it, or leave tls out"},
		{l.Given(&f.Alerts) && !l.Given(&f.Alerts.Webhook) && f.Alerts.Secret == "", &f.Alerts, "no alert is sent: there is no webhook", "write webhook: with a URL, or leave alerts out"},
		{l.Given(&f.Traces) && !l.Given(&f.Traces.Endpoint), &f.Traces, "nothing is traced: there is no endpoint", "write endpoint: with the URL of a collector, or leave traces out"},
	})
	l.warnNoStore(&f.Defaults.OnStoreFailure)
}

// unused reports the entries of a section to which nothing refers.
func unused[F any](l *loader, section map[string]*F, report func(pointer any, what, instead string), f fault) {
	for _, name := range form.SortedKeys(section) {
		if !l.used[section[name]] {
			report(section[name], f.what, strings.ReplaceAll(f.instead, "NAME", name))
		}
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
func (l *loader) warnItself(pointer any, to *url.URL) {
	target := address{to.Hostname(), cmp.Or(to.Port(), map[string]string{"http": "80", "https": "443"}[to.Scheme])}
	for _, own := range []*string{&l.main.Listen.HTTP, &l.main.Listen.HTTPS} {
		at := parseAddress(unlessNone(*own))
		if at.port != "" && at.port == target.port && (at.host == target.host || target.loopback() && at.meets(target)) {
			l.Warn(pointer, "this is Weir itself, its "+l.Location(own).Path+": every request would come back and end with 508", "write the address of the server behind Weir")
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
					l.Warn(read.texts[i], limit.writtenRate(r)+" never applies: "+limit.writtenRate(other)+" allows no more, in a longer time", "leave it out, or write a smaller count")
				default:
					most := limit.writtenRate(limiter.Rate{Count: windows * other.Count, Window: r.Window})
					l.Warn(read.texts[i], limit.writtenRate(r)+" is never reached: "+limit.writtenRate(other)+" is at most "+most, "leave it out, or write less than "+most)
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
func (l *loader) warnNoStore(pointer *OnStoreFailure) {
	if l.Given(pointer) && *pointer == Deny && l.main.Store == StoreMemory {
		l.Warn(pointer, "nothing is ever denied by it: with store: memory there is no store that could fail", "write store: redis, or leave it out")
	}
}

// An EncodedSlash is the handling of %2F in a path.
type EncodedSlash string

// Values of EncodedSlash.
const (
	RefuseSlash EncodedSlash = "refuse" // 400: some servers treat it as a slash
	KeepSlash   EncodedSlash = "keep"   // it is part of its segment, here and for the upstream
)

// catchAlls warns of routes that match more or fewer paths than their pattern suggests: a
// catch-all without limits that receives variations of paths with limits, "/", which
// matches only the path "/", and /api/, which does not match what is below it.
func (r *routes) catchAlls(made []*Route) {
	for _, route := range made {
		form := route.form
		below, open := strings.CutSuffix(route.Match.Path, "*")
		switch {
		case open && len(route.Limits) == 0 && route.Upstream != nil:
			if limited := limitedBelow(route, below, made); limited != nil {
				r.Warn(&form.Match.Path, "this route has no limits and takes what is not quite another's, such as other spellings of "+limited.Name+" at "+limited.Position.String(),
					"give it limits, name the paths that it is for, or write respond: {status: 404}")
			}
		case route.Match.Path == "/" && !catches(route.Match.Host, made):
			r.Warn(&form.Match.Path, "this is / alone, and nothing below it", "write /* if all paths are meant")
		case isBeginning(route) && !slices.ContainsFunc(made, func(o *Route) bool {
			return o != route && (strings.HasPrefix(o.Match.Path, route.Match.Path) || o.Match.Path+"/" == route.Match.Path)
		}):
			r.Warn(&form.Match.Path, "this is "+form.Match.Path+" alone, and nothing below it", "write "+form.Match.Path+"* if all paths below it are meant")
		}
	}
}

// isBeginning reports whether the path of a route is probably meant as the beginning of others, as in nginx: it ends with
// a slash, and the route is for all methods of one place.
func isBeginning(r *Route) bool {
	m := r.Match
	return len(m.Path) > 1 && strings.HasSuffix(m.Path, "/") && len(m.Params) == 0 && len(m.Methods) == 0 && r.Redirect == nil && r.Respond == nil
}

// limitedBelow returns a route with limits whose path is below a catch-all, nil if there is
// none.
func limitedBelow(all *Route, below string, made []*Route) *Route {
	for _, other := range made {
		overlap := all.Match.Host == "" || other.Match.Host == "" || all.Match.Host == other.Match.Host
		if other != all && overlap && len(other.Limits) > 0 && strings.HasPrefix(other.Match.Path, below) {
			return other
		}
	}
	return nil
}

// catches reports whether a route matches all paths of host.
func catches(host string, made []*Route) bool {
	return slices.ContainsFunc(made, func(r *Route) bool { return r.Match.Path == "/*" && (r.Match.Host == "" || r.Match.Host == host) })
}

// unreachable finds routes that can never match. If two routes match the same request, the
// more specific one wins: by host, path, method, number of headers and query parameters,
// then the order of the files. So a route is unreachable only because of earlier ones with
// the same scheme, host, path, headers and query that match all its methods.
type unreachable map[string][]*Route

// add returns an earlier route that makes this one unreachable, or nil.
func (u unreachable) add(route *Route, shape string) *Route {
	id := []string{route.Match.Scheme, route.Match.Host, shape}
	for _, wanted := range []map[string]string{route.Match.Headers, route.Match.Query} {
		id = append(id, "?")
		for _, name := range form.SortedKeys(wanted) {
			id = append(id, name, wanted[name])
		}
	}
	place := strings.Join(id, "\x00") // no text of a file has a control character
	earlier := u[place]
	u[place] = append(earlier, route)

	left := slices.Clone(route.Match.Methods)
	for _, e := range earlier {
		left = slices.DeleteFunc(left, func(m string) bool { return slices.Contains(e.Match.Methods, m) })
		if len(left) == 0 && (len(route.Match.Methods) > 0 || len(e.Match.Methods) == 0) {
			return e
		}
	}
	return nil
}

// The maximum sizes of files named by fields, in bytes.
const (
	maxAttached = form.MaxSize
	maxList     = 128 << 20 // millions of values
)

// attach reads the file named by a field, of at most most bytes, relative to the file that contains the field. Its
// content is part of the configuration: it is included in the hash, and the file in Files.
// It reports whether there is content; an empty name has none, and a file that cannot be
// read is a problem.
func (l *loader) attach(name *string, most int64) ([]byte, bool) {
	if *name == "" {
		return nil, false
	}
	path := form.Within(filepath.Dir(l.Location(name).File), *name)
	l.made.own[filepath.Clean(path)] = true
	data, err := l.source.Read(path, most)
	l.made.Files = append(l.made.Files, path)
	if l.refuseFirst([]finding{
		{errors.Is(err, ErrForeign), name, fmt.Sprintf("%s cannot be read: %v", form.Quote(*name), err), "put it there"},
		{err != nil, name, fmt.Sprintf("%s cannot be read: %v", form.Quote(*name), err), "name a file that Weir may read"},
		{int64(len(data)) > most, name, fmt.Sprintf("%s is longer than %d MiB", form.Quote(*name), most>>20), "name a shorter file"},
	}) {
		return nil, false
	}
	form.AddParts(l.hash, []byte(*name), data)
	form.AddParts(l.common, []byte(*name), data)
	return data, true
}
