package config

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// echo is the name of the upstream that is built in.
const echo = "echo"

// compileUpstreams makes the named upstreams, each once.
func (l *loader) compileUpstreams() {
	for _, name := range form.SortedKeys(l.main.Upstreams) {
		f := l.main.Upstreams[name]
		l.checkName(f, name, "an upstream")
		l.made.Upstreams[name] = l.upstream(name, f)
	}
}

// upstream makes the upstream of a form.
func (l *loader) upstream(name string, f *Upstream) *Upstream {
	up := new(*f)
	up.Text, up.Servers, up.Name, up.Position = "", nil, name, l.Location(f).Position
	l.health(&f.Health, &up.Health)
	if f.Text == echo {
		up.Echo, up.Balance = true, BalanceRoundRobin
		return up
	}
	if f.Text != "" { // sms: http://127.0.0.1:9000
		target := &Target{Text: f.Text, Weight: 1}
		l.Alias(&target.Text, &f.Text)
		f.Text, f.Servers = "", []*Target{target}
	}
	seen := map[string]bool{}
	for _, t := range f.Servers {
		if t.Text == "" {
			continue // already reported
		}
		to := l.url(&t.Text)
		if to == nil {
			continue // already reported
		}
		twice := seen[to.String()]
		seen[to.String()] = true
		if l.refuseFirst([]finding{
			{twice, &t.Text, to.String() + " is given twice", "keep one, and give it weight: 2 for a double share"},
			{up.Protocol == ProtocolH2 && to.Scheme != "https", &t.Text, "h2 needs https, and this target is " + to.Scheme, "write https://, or protocol: h2c"},
			{up.Protocol == ProtocolH2C && to.Scheme == "https", &t.Text, "h2c is HTTP/2 without TLS, and this target is https", "write protocol: h2"},
		}) {
			continue
		}
		up.Targets = append(up.Targets, Target{Weight: t.Weight, URL: to})
		l.warnItself(&t.Text, to)
	}
	up.Balance, up.HashBy = l.balance(f)
	up.TLS = l.upstreamTLS(f, up.Targets)
	if l.Given(&f.Queue) && f.MaxConnections == 0 && l.Valid(&f.MaxConnections) {
		l.Warn(&f.Queue, "nothing ever waits: there is no max_connections", "write how many requests a target works on at a time, or leave queue out")
	}
	return up
}

// upstreamOf finds the upstream of a route by its name, or makes one of its URL, once.
func (l *loader) upstreamOf(text *string) *Upstream {
	l.used[l.main.Upstreams[*text]] = true
	if up, ok := l.made.Upstreams[*text]; ok || *text == "" {
		return up // nil if already reported
	}
	name := *text
	switch {
	case name == echo:
	case !strings.Contains(name, "://") && !strings.HasPrefix(name, "unix:"):
		instead := form.Near(name, append(form.SortedKeys(l.main.Upstreams), echo))
		if _, _, err := net.SplitHostPort(name); err == nil {
			instead = "write a URL: http://" + name
		}
		if l.Lacks(&l.main.Upstreams, name) {
			l.Wrong(text, "there is no upstream "+form.Quote(name), cmp.Or(instead, "name one under upstreams, or write a URL such as http://127.0.0.1:9000"))
		}
		return nil
	default:
		to := l.url(text)
		if to == nil {
			return nil
		}
		name = to.String()
	}
	if up, ok := l.made.Upstreams[name]; ok {
		return up
	}
	f := &Upstream{Text: name}
	l.SetDefaults(l.Location(text), f)
	l.Alias(&f.Text, text)
	up := l.upstream(name, f)
	up.Position = l.Location(text).Position
	l.made.Upstreams[name] = up
	return up
}

// url reads the URL of a target: scheme and host, perhaps a port; or unix: and a path. It returns nil after a problem, which
// never repeats the text: it may hold a password.
func (l *loader) url(text *string) *url.URL {
	const example = "write for example http://127.0.0.1:9000"
	to, err := url.Parse(*text)
	if err != nil {
		what := "not a URL"
		if ue := (*url.Error)(nil); errors.As(err, &ue) && !strings.Contains(*text, "@") {
			what += ": " + ue.Err.Error()
		}
		l.Wrong(text, what, example)
		return nil
	}
	if to.Scheme == "unix" {
		return l.socket(text, to)
	}
	port, err := strconv.ParseUint(to.Port(), 10, 16)
	if l.refuseFirst([]finding{
		{to.Scheme != "http" && to.Scheme != "https", text, "the scheme is none of http, https and unix", example},
		{to.User != nil, text, "the URL has a user name or password", "write it without, and let clients send the Authorization header"},
		{!form.IsHost(to.Hostname()), text, "the URL has no host", example},
		{to.Port() != "" && (err != nil || port == 0) || strings.HasSuffix(to.Host, ":"), text, "the port is not a number from 1 to 65535", example},
		{to.Path != "" && to.Path != "/", text,
			"the URL has a path", "write it without, and below the route rewrite: {add_prefix: " + strings.TrimSuffix(to.Path, "/") + "}: the path of the request is forwarded as it is"},
		{to.RawQuery != "" || to.ForceQuery || to.Fragment != "" || strings.Contains(*text, "#"), text, "the URL has a query or a fragment", "write it without"},
	}) {
		return nil
	}
	return &url.URL{Scheme: to.Scheme, Host: strings.ToLower(to.Host)}
}

// maxSocket is how long the path of a unix socket may be, in bytes.
const maxSocket = 107

// socket reads unix:/path or unix:///path.
func (l *loader) socket(text *string, from *url.URL) *url.URL {
	const example = "write for example unix:/run/app.sock"
	if l.refuseFirst([]finding{
		{from.User != nil || from.Host != "" || from.RawQuery != "" || from.ForceQuery || from.Fragment != "", text, "the URL of a socket has more than a path", example},
		{!strings.HasPrefix(from.Path, "/") || strings.HasSuffix(from.Path, "/"), text, "the path of the socket does not begin at the root, or is that of a directory", example},
		{len(from.Path) > maxSocket, text, "the path of the socket is longer than " + strconv.Itoa(maxSocket) + " bytes", "put the socket into a directory with a shorter name"},
	}) {
		return nil
	}
	return &url.URL{Scheme: "unix", Path: from.Path, OmitHost: true}
}

// balance parses round_robin, least_loaded or hash:KEY.
func (l *loader) balance(f *Upstream) (Balance, *key.Spec) {
	const choices = "write round_robin, least_loaded or hash:KEY"
	name, text, hashed := strings.Cut(string(f.Balance), ":")
	balance := Balance(name)
	switch {
	case hashed && balance != BalanceHash,
		!hashed && balance != BalanceRoundRobin && balance != BalanceLeastLoaded:
		if f.Balance != "" {
			l.Wrong(&f.Balance, form.Quote(string(f.Balance))+" is not a load balancing method", choices)
		}
		return BalanceRoundRobin, nil
	case len(f.Servers) == 1 && l.Given(&f.Balance):
		l.Warn(&f.Balance, "there is one target, so nothing is balanced", "leave it out, or name more targets")
	}
	if !hashed {
		return balance, nil
	}
	l.Alias(&text, &f.Balance)
	if text == "" {
		l.Wrong(&text, "has no key", choices)
	}
	by := l.keys.refer(&text)
	if by == nil {
		return BalanceRoundRobin, nil // already reported
	}
	l.warn([]finding{
		{by.From.Source.IsConstant(), &f.Balance, "all requests have this key, so all go to one target", "name a key that differs between clients"},
		{mayMiss(by), &f.Balance, "requests without " + by.Name + " are spread by round robin", "use a key that every request has, or set on_missing: {use: client_ip}"},
		{f.Health.SlowStart > 0, &f.Health.SlowStart, "a target that is back gets the requests of its keys at once", "leave it out, or balance in another way"},
	})
	return BalanceHash, by
}

// mayMiss reports whether requests without the key are accepted.
func mayMiss(s *key.Spec) bool {
	if s.Of != nil {
		return mayMiss(s.Of)
	}
	return slices.ContainsFunc(s.Join, mayMiss) || s.From.Source.IsNamed() && s.OnMissing != key.Shared && (s.OnMissing != key.Use || s.Fallback == nil || mayMiss(s.Fallback))
}

func (l *loader) health(f, made *Health) {
	made.Status = f.Status.orSuccess()
	if f.Path != "" && (!strings.HasPrefix(f.Path, "/") || strings.HasPrefix(f.Path, "//") || strings.ContainsAny(f.Path, " ?#")) {
		l.Wrong(&f.Path, form.Quote(f.Path)+" is not a path", "write for example /healthz, without a query")
	}
	if f.Path == "" && l.Valid(&f.Path) && (l.Given(&f.Interval) || l.Given(&f.Timeout) || l.Given(&f.Status)) {
		l.Warn(f, "targets are not checked: there is no path", "write path: with the path to request, for example /healthz")
	}
}
