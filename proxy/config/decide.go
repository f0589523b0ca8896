package config

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// A Dialect is how a proxy describes the request that it asks about, and which answers it understands.
type Dialect string

// The dialects.
const (
	Nginx   Dialect = "nginx"
	Traefik Dialect = "traefik"
	Caddy   Dialect = "caddy"
	APISIX  Dialect = "apisix"
	HAProxy Dialect = "haproxy"
)

// SendsBody reports whether a proxy of this dialect can send the body of the request.
func (d Dialect) SendsBody() bool { return d == Traefik || d == APISIX || d == HAProxy }

// decide makes the listener for other proxies; nil if there is none.
func (l *loader) decide(f *Decide) *Decide {
	if !f.listens() {
		return nil
	}
	l.refuse([]finding{
		{f.Dialect == "" && l.Valid(&f.Dialect) && unlessNone(f.HTTP) != "", f, "has no dialect", "write dialect: below it"},
		{l.Valid(&f.Within) && (f.Within < time.Millisecond || f.Within > time.Minute), &f.Within, "is out of range", "write 1ms to 1m, less than the proxy waits"},
		{l.Valid(&f.WithinOutcome) && (f.WithinOutcome < time.Second || f.WithinOutcome > time.Hour), &f.WithinOutcome, "is out of range", "write 1s to 1h"},
		{f.Secret != "" && len(f.Secret) < leastToken, &f.Secret, "is short enough to guess", "use 16 characters or more, made at random"},
	})
	l.warnTrust(f.Trusted)
	d := *f
	d.HTTP, d.GRPC, d.Files = unlessNone(f.HTTP), unlessNone(f.GRPC), nil
	if f.Files != nil {
		d.TLS = []Pair{l.opensPair(&f.Files.Cert, &f.Files.Key)}
	}
	d.ClientCA, _ = l.authorities(&f.ClientCA)
	return &d
}

// decideListener checks that the listener for other proxies can stand beside the others, and is not open
// to everybody.
func (l *loader) decideListener(f *Config) {
	if !f.Listen.Decide.listens() {
		return
	}
	d := f.Listen.Decide
	at := l.address(&d.HTTP, unlessNone(d.HTTP))
	grpc := l.address(&d.GRPC, unlessNone(d.GRPC))
	network, where := at.port != "" && !at.loopback(), &d.HTTP
	if !network {
		network, where = grpc.port != "" && !grpc.loopback(), &d.GRPC
	}
	l.refuse([]finding{
		{d.HTTP == "" && unlessNone(d.GRPC) == "" && l.Valid(&d.HTTP) && l.Valid(&d.GRPC), d,
			"nobody can ask: there is no address", `write http: "127.0.0.1:8082" in it, or grpc: "127.0.0.1:8081" for Envoy`},
		{d.ClientCA != "" && d.Files == nil, &d.ClientCA, "no client certificate is requested, because there is no tls", "write tls: {cert: FILE, key: FILE} beside it"},
		{network && len(d.Trusted) == 0 && d.ClientCA == "" && d.Token == "" && l.Valid(&d.Token), where,
			"anyone on the network could use up somebody's limits", "write trusted: with the addresses of your proxies, client_ca: or token: beside it, or listen on 127.0.0.1"},
		{network && d.Token != "" && len(d.Token) < leastToken, &d.Token, "is short enough to guess by others on the network", "use 16 characters or more, made at random, or listen on 127.0.0.1"},
	})
	if f.Store == StoreRedis && d.Secret == "" && l.Valid(&d.Secret) {
		l.Warn(d, "only the node that decided accepts the outcome of a request, and only until it ends", `write secret: "${WEIR_DECIDE_SECRET}", the same on all nodes`)
	}
}

// listens reports whether other proxies may ask.
func (d *Decide) listens() bool {
	return d != nil && (d.HTTP != none || unlessNone(d.GRPC) != "")
}

// onlyDecides reports whether requests are decided for other proxies alone, and none is forwarded.
func (l *Listen) onlyDecides() bool {
	return l.Decide.listens() && unlessNone(l.HTTP) == "" && unlessNone(l.HTTPS) == ""
}

// decidable checks that a proxy that asks about the requests of a route sends what the route reads, and
// does what the route asks for.
func (r *routes) decidable(made *Route) {
	if r.main.Listen.onlyDecides() || made.Match.Domain != "" {
		r.withoutForwarding(made)
	}
	d := r.main.Listen.Decide
	if !d.listens() || d.Dialect == "" || d.Dialect.SendsBody() || !r.Valid(&d.Dialect) {
		return
	}
	report := r.Warn // such a request can be forwarded
	if r.main.Listen.onlyDecides() {
		report = r.Wrong
	}
	for _, p := range made.places() {
		if p.Key.InBody() {
			report(p.at, p.of+" reads "+p.Key.Name+" from the body, which "+string(d.Dialect)+" does not send", withoutBody)
		}
	}
}

// A place is where a route reads a key: of is the limit or list.
type place struct {
	Read
	at any
	of string
}

// places returns where the limits and lists of r read keys.
func (r *Route) places() (all []place) {
	for _, l := range r.Limits {
		all = slices.Concat(all, view.Each(l.Reads(), func(read Read) place { return place{read, r.limitForm(l), "limit " + l.Name} }))
	}
	return slices.Concat(all, view.Each(r.Lists, func(l *List) place { return place{l.read(), r.form, "list " + l.Name} }))
}

// withoutForwarding warns of what only a proxy that forwards can do.
func (r *routes) withoutForwarding(made *Route) {
	for _, l := range made.Limits {
		if l.Wait > 0 {
			r.Warn(made.limitForm(l), "limit "+l.Name+" does not wait: a proxy that asks gets the refusal at once", "leave wait out")
		}
	}
	if on := made.form.RefundForm; on != nil {
		r.warn([]finding{
			{len(on.Errors) > 0, &on.Errors, "a proxy that asks reports the status of the response, and no error", "write status: [5xx] instead"},
			{on.Header != "", &on.Header, "a proxy that asks reports the status of the response, and no field", "write status: [5xx] instead"},
		})
	}
}

// limitForm returns the form of a limit, or that of the route if the limit stands elsewhere.
func (r *Route) limitForm(l *Limit) any {
	if l.IsCommon() {
		return r.form
	}
	return l.form
}

// withoutBodies warns of keys in the body of requests that have none.
func (r *routes) withoutBodies(made *Route) {
	with := slices.DeleteFunc(slices.Clone(made.Match.Methods), func(m string) bool { return m == http.MethodGet || m == http.MethodHead })
	if len(with) == len(made.Match.Methods) {
		return
	}
	for _, p := range made.places() {
		inBody := p.Mode != Off && p.Key.InBody()
		r.warn([]finding{
			{inBody && len(with) == 0, p.at, "requests with GET and HEAD have no body to read " + p.Key.Name + " from", "write methods: [POST], or read the key from a header, the query or a cookie"},
			{inBody && len(with) > 0 && p.Mode == Enforce && needsBody(p.Key), p.at,
				"requests with GET and HEAD are refused with 400: they have no body to read " + p.Key.Name + " from", "write another route for them, or on_missing: skip for the key"},
		})
	}
}

// needsBody reports whether requests without a body lack the key, and are refused for that.
func needsBody(s *key.Spec) bool {
	if s.Of != nil {
		return needsBody(s.Of)
	}
	return s.OnMissing == key.Reject && s.From.Source.IsBody() || slices.ContainsFunc(s.Join, needsBody)
}

const withoutBody = "read it from a header, the query or a cookie, or let a proxy ask that sends bodies: haproxy, traefik or apisix"

// entries reads the descriptor of a match; nil if it matches requests.
func (r *routes) entries(f *Match) map[string]string {
	r.combine(f, []rule{
		{"domain", "path methods scheme host headers query", "", "a descriptor has no NAME", "leave it out, or write another route for requests"},
		{"descriptor", "", "domain", "there is no domain", "write domain: beside it, with that of Envoy's rate limit filter"},
	})
	if f.Domain == "" {
		return nil
	}
	if len(f.Descriptor) == 0 {
		r.Wrong(f, "has no descriptor", `write descriptor: {ENTRY: VALUE, ENTRY: "*"} with all entries that Envoy sends`)
	}
	if _, unnamed := f.Descriptor[""]; unnamed {
		r.WrongName(form.Entry{Of: &f.Descriptor}, "an entry has no name", `write ENTRY: VALUE, ENTRY: PREFIX* or ENTRY: "*"`)
	}
	return f.Descriptor
}

// descriptor checks that a route for descriptors uses nothing that only requests have, and a
// route for requests no descriptor.
func (r *routes) descriptor(made *Route) {
	keys := map[*key.Spec]any{}
	for _, p := range made.places() {
		if p.Purpose != ForCost && p.Purpose != ForStepUp {
			keys[p.Key] = p.at
		}
	}
	for _, l := range made.Limits {
		at := made.limitForm(l)
		r.refuse([]finding{
			{made.Match.Domain != "" && l.Cost != nil, at, "the cost of a descriptor is hits_addend", "leave cost out"},
			{made.Match.Domain == "" && l.RateFrom != "", at, "requests have no limit for rate_from", "leave rate_from out, or write match: {domain: NAME, descriptor: {ENTRY: VALUE}}"},
			{made.Match.Domain != "" && l.StepUp != nil, at, "a descriptor has no token for step_up", "leave step_up out"},
		})
	}
	for _, s := range slices.SortedFunc(maps.Keys(keys), func(a, b *key.Spec) int { return strings.Compare(a.Name, b.Name) }) {
		for _, o := range s.Origins() {
			r.described(keys[s], s, o, &made.Match)
		}
	}
	if made.Match.Domain == "" {
		return
	}
	made.NewKeys = limiter.Rate{} // that of defaults is for each client, and a descriptor has none
	r.combine(made.form, []rule{
		{"match", "upstream redirect respond rewrite body idempotency new_keys", "", "a route for descriptors has no NAME", "leave it out: Envoy forwards the request"},
	})
	if r.main.Listen.Decide == nil {
		r.Warn(made.form, "nobody asks about descriptors: there is no listen.decide.grpc", `write listen: {decide: {grpc: "127.0.0.1:8081"}}`)
	}
}

// described checks that what a route matches has what a key is read from.
func (r *routes) described(at any, s *key.Spec, o key.Origin, m *Match) {
	isEntry := o.Source.IsEntry()
	_, has := m.Descriptor[o.Name]
	r.refuse([]finding{
		{m.Domain == "" && isEntry, at, "the key " + s.Name + " is read from a descriptor, which requests do not have", "write match: {domain: NAME, descriptor: {" + o.Name + `: "*"}}`},
		{m.Domain != "" && isEntry && !has, at, "the key " + s.Name + " is read from " + o.String() + ", but the route's descriptor has no " + o.Name, "write " + o.Name + `: "*" in match.descriptor`},
		{m.Domain != "" && !isEntry && !o.Source.IsConstant(), at,
			"the key " + s.Name + " is read from " + o.String() + ", which a descriptor does not have", "read it from descriptor:ENTRY, and let Envoy send it as an entry"},
	})
}
