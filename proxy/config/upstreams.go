package config

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// echo is the name of the upstream that is built in.
const echo = "echo"

// upstreams makes each upstream once, those written in place by their URL.
type upstreams struct {
	*loader
	keys   *keys
	byName map[string]*Upstream
	used   map[string]bool // names that a route has
}

// newUpstreams makes the named upstreams.
func newUpstreams(l *loader, keys *keys) *upstreams {
	u := &upstreams{loader: l, keys: keys, byName: map[string]*Upstream{}, used: map[string]bool{}}
	for _, name := range form.SortedKeys(l.main.Upstreams) {
		f := l.main.Upstreams[name]
		l.checkName(f, name, "an upstream")
		u.byName[name] = u.build(name, f)
	}
	return u
}

// build makes the upstream of a form.
func (u *upstreams) build(name string, f *Upstream) *Upstream {
	whole := *f
	up := &whole
	up.Text, up.Servers, up.Files, up.Name, up.Position = "", nil, upstreamTLSForm{}, name, u.Location(f).Position
	up.Health = u.health(&f.Health)
	if f.Text == echo {
		up.Echo, up.Balance = true, BalanceRoundRobin
		return up
	}
	if f.Text != "" { // sms: http://127.0.0.1:9000
		target := &targetForm{URL: f.Text, Weight: 1}
		u.Alias(&target.URL, &f.Text)
		f.Text, f.Servers = "", []*targetForm{target}
	}
	seen := map[string]bool{}
	for _, t := range f.Servers {
		if t == nil || t.URL == "" {
			continue // already reported
		}
		to, what, instead := parseURL(t.URL)
		switch {
		case what != "":
			u.Wrong(&t.URL, what, instead)
		case seen[to.String()]:
			u.Wrong(&t.URL, to.String()+" is given twice", "keep one, and give it weight: 2 for a double share")
		default:
			seen[to.String()] = true
			up.Targets = append(up.Targets, Target{to, t.Weight})
			u.checkProtocol(&t.URL, up.Protocol, to.Scheme)
			u.warnItself(&t.URL, to)
		}
	}
	up.Balance, up.HashBy = u.balance(f)
	up.TLS = u.tls(f, up.Targets)
	if u.Given(&f.Queue) && f.MaxConnections == 0 && u.Valid(&f.MaxConnections) {
		u.Warn(&f.Queue, "nothing ever waits: there is no max_connections", "write how many requests a target works on at a time, or leave queue out")
	}
	return up
}

// refer finds the upstream of a route by its name, or makes one of its URL.
func (u *upstreams) refer(text *string) *Upstream {
	u.used[*text] = true
	if up, ok := u.byName[*text]; ok {
		return up
	}
	if *text == "" {
		return nil // already reported
	}
	if *text != echo && !strings.Contains(*text, "://") && !strings.HasPrefix(*text, "unix:") {
		instead := form.Near(*text, append(form.SortedKeys(u.main.Upstreams), echo))
		if _, _, err := net.SplitHostPort(*text); err == nil {
			instead = "write a URL: http://" + *text
		}
		instead = cmp.Or(instead, "name one under upstreams, or write a URL such as http://127.0.0.1:9000")
		if u.Lacks(&u.main.Upstreams, *text) {
			u.Wrong(text, "there is no upstream "+form.Quote(*text), instead)
		}
		return nil
	}
	name := *text
	if name != echo {
		to, what, instead := parseURL(*text)
		if what != "" {
			u.Wrong(text, what, instead)
			return nil
		}
		name = to.String()
	}
	if up, ok := u.byName[name]; ok {
		return up
	}
	f := &Upstream{Text: name}
	u.SetDefaults(u.Location(text), f)
	u.Alias(&f.Text, text)
	up := u.build(name, f)
	up.Position = u.Location(text).Position
	u.byName[name] = up
	return up
}

// parseURL reads the URL of a target: scheme and host, perhaps a port; or unix:
// and a path. What is wrong never repeats the text, which may hold a password.
func parseURL(text string) (to *url.URL, what, instead string) {
	const example = "write for example http://127.0.0.1:9000"
	to, err := url.Parse(text)
	if err != nil {
		if ue := (*url.Error)(nil); errors.As(err, &ue) && !strings.Contains(text, "@") {
			return nil, "not a URL: " + ue.Err.Error(), example
		}
		return nil, "not a URL", example
	}
	if to.Scheme == "unix" {
		return parseSocket(to)
	}
	port, err := strconv.ParseUint(to.Port(), 10, 16)
	switch {
	case to.Scheme != "http" && to.Scheme != "https":
		return nil, "the scheme is none of http, https and unix", example
	case to.User != nil:
		return nil, "the URL has a user name or password", "write it without, and let clients send the Authorization header"
	case !form.IsHost(to.Hostname()):
		return nil, "the URL has no host", example
	case to.Port() != "" && (err != nil || port == 0) || strings.HasSuffix(to.Host, ":"):
		return nil, "the port is not a number from 1 to 65535", example
	case to.Path != "" && to.Path != "/":
		return nil, "the URL has a path", "write it without, and below the route rewrite: {add_prefix: " + strings.TrimSuffix(to.Path, "/") + "}: the path of the request is forwarded as it is"
	case to.RawQuery != "" || to.ForceQuery || to.Fragment != "" || strings.Contains(text, "#"):
		return nil, "the URL has a query or a fragment", "write it without"
	}
	return &url.URL{Scheme: to.Scheme, Host: strings.ToLower(to.Host)}, "", ""
}

// maxSocket is how long the path of a unix socket may be, in bytes.
const maxSocket = 107

// parseSocket reads unix:/path or unix:///path.
func parseSocket(from *url.URL) (to *url.URL, what, instead string) {
	const example = "write for example unix:/run/app.sock"
	switch {
	case from.User != nil || from.Host != "" || from.RawQuery != "" || from.ForceQuery || from.Fragment != "":
		return nil, "the URL of a socket has more than a path", example
	case !strings.HasPrefix(from.Path, "/") || strings.HasSuffix(from.Path, "/"):
		return nil, "the path of the socket does not begin at the root, or is that of a directory", example
	case len(from.Path) > maxSocket:
		return nil, "the path of the socket is longer than " + strconv.Itoa(maxSocket) + " bytes", "put the socket into a directory with a shorter name"
	}
	return &url.URL{Scheme: "unix", Path: from.Path, OmitHost: true}, "", ""
}

// balance parses round_robin, least_loaded or hash:KEY.
func (u *upstreams) balance(f *Upstream) (Balance, *key.Spec) {
	const choices = "write round_robin, least_loaded or hash:KEY"
	name, text, hashed := strings.Cut(string(f.Balance), ":")
	balance := Balance(name)
	switch {
	case hashed && balance != BalanceHash,
		!hashed && balance != BalanceRoundRobin && balance != BalanceLeastLoaded:
		if f.Balance != "" {
			u.Wrong(&f.Balance, form.Quote(string(f.Balance))+" is not a load balancing method", choices)
		}
		return BalanceRoundRobin, nil
	case len(f.Servers) == 1 && u.Given(&f.Balance):
		u.Warn(&f.Balance, "there is one target, so nothing is balanced", "leave it out, or name more targets")
	}
	if !hashed {
		return balance, nil
	}
	u.Alias(&text, &f.Balance)
	if text == "" {
		u.Wrong(&text, "has no key", choices)
	}
	by := u.keys.refer(&text)
	switch {
	case by == nil:
		return BalanceRoundRobin, nil // already reported
	case by.From.Source.IsConstant():
		u.Warn(&f.Balance, "all requests have this key, so all go to one target", "name a key that differs between clients")
	case mayMiss(by):
		u.Warn(&f.Balance, "requests without "+by.Name+" are spread by round robin", "use a key that every request has, or set on_missing: {use: client_ip}")
	}
	if f.Health.SlowStart > 0 {
		u.Warn(&f.Health.SlowStart, "a target that is back gets the requests of its keys at once", "leave it out, or balance in another way")
	}
	return BalanceHash, by
}

// mayMiss reports whether requests without the key are accepted.
func mayMiss(s *key.Spec) bool {
	for _, part := range s.Join {
		if mayMiss(part) {
			return true
		}
	}
	if s.Of != nil {
		return mayMiss(s.Of)
	}
	return s.From.Source.IsNamed() && s.OnMissing != key.Shared && (s.OnMissing != key.Use || s.Fallback == nil || mayMiss(s.Fallback))
}

func (u *upstreams) health(f *Health) Health {
	h := *f
	h.Status, h.Codes = f.Codes.statuses(), nil
	if len(f.Codes) == 0 {
		h.Status.add(200, 299)
	}
	if f.Path != "" && (!strings.HasPrefix(f.Path, "/") || strings.HasPrefix(f.Path, "//") || strings.ContainsAny(f.Path, " ?#")) {
		u.Wrong(&f.Path, form.Quote(f.Path)+" is not a path", "write for example /healthz, without a query")
	}
	if f.Path == "" && u.Valid(&f.Path) && (u.Given(&f.Interval) || u.Given(&f.Timeout) || u.Given(&f.Codes)) {
		u.Warn(f, "targets are not checked: there is no path", "write path: with the path to request, for example /healthz")
	}
	return h
}

// checkProtocol checks that targets with this scheme support protocol.
func (u *upstreams) checkProtocol(pointer *string, protocol Protocol, scheme string) {
	switch {
	case protocol == ProtocolH2 && scheme != "https":
		u.Wrong(pointer, "h2 needs https, and this target is "+scheme, "write https://, or protocol: h2c")
	case protocol == ProtocolH2C && scheme == "https":
		u.Wrong(pointer, "h2c is HTTP/2 without TLS, and this target is https", "write protocol: h2")
	}
}
