package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// routes makes routes.
type routes struct {
	*loader
	prices    map[string]*Prices
	templates []template             // of limiters that Java programs share, so far
	planLists map[planList]*key.List // so far
	common    map[string]*Limit      // the limits at the top, which have one count for all routes that name them
	naming    map[string][]string    // the routes that name a common limit
	compiled  []*Limit               // so far
	byName    map[string]*Route
}

// all makes the routes of all files, in their order.
func (r *routes) all(forms []*Route) []*Route {
	r.name(forms)
	var made []*Route
	seen := unreachable{}
	for _, f := range forms {
		p := r.path(&f.Match)
		route := new(*f)
		route.form, route.Position = f, r.Location(f).Position
		r.match(&f.Match, &route.Match, p)
		route.Upstream = r.upstreamOf(&f.UpstreamName)
		route.Redirect, route.Respond, route.Rewrite = given(f.Redirect, r.redirect), given(f.Respond, r.respond), r.rewrite(f.RewriteForm, p)
		route.Limits = (&limits{routes: r, route: f, params: p.params}).all(f.LimitForms)
		route.Lists, route.RefundOn, route.Usage = r.listsOf(f, p), given(f.RefundForm, r.refund), given(f.UsageForm, r.usage)
		route.Idempotency, route.Reject, route.Errors = given(f.Idempotency, r.idempotency), r.reject(&f.Reject), r.errors(r.made.Errors, f.ErrorTexts)
		if f.Body != nil {
			route.MaxBody = int64(f.Body.Max)
		}
		route.NewKeys, route.NewKeysMode = r.newKeysOf(route)
		r.destination(f)
		r.descriptor(route)
		r.decidable(route)
		r.settled(route)
		r.countedOnce(route)
		r.withoutBodies(route)
		r.upgrades(route)
		r.withoutEffect(route)
		r.phones(route)
		if by := seen.add(route, p.shape); by != nil && f.Match.Domain == "" {
			r.Warn(f, "this route can never match: "+by.Name+" at "+by.Position.String()+" comes first for the same requests", "take one of them out, or let them differ in match")
		}
		made = append(made, route)
	}
	r.link(made)
	r.counters()
	r.catchAlls(made)
	r.others(made)
	r.warnLoops(made)
	r.manyCalls(made)
	return made
}

// given returns what compile makes of a form; the zero value if it is not written.
func given[F, T any](f *F, compile func(*F) T) (made T) {
	if f != nil {
		made = compile(f)
	}
	return made
}

// upgrades checks that the route's upstream can carry what the route lets through.
func (r *routes) upgrades(route *Route) {
	if up := route.Upstream; route.WebSocket && up != nil && up.Protocol != ProtocolHTTP1 && !up.Echo {
		r.Wrong(&route.form.WebSocket, "upstream "+up.Name+" speaks "+string(up.Protocol)+", which carries no websocket", "let it speak http1, or name another upstream")
	}
}

// withoutEffect warns of what a route without limits, or without an upstream, has for nothing.
func (r *routes) withoutEffect(route *Route) {
	f := route.form
	for _, field := range []any{&f.Mode, &f.RefundForm, &f.Idempotency, &f.Reject} {
		if len(route.Limits) == 0 && r.Given(field) {
			r.Warn(field, "has no effect: the route has no limits", "write limits: beside it, or leave it out")
		}
	}
	if (f.Redirect != nil || f.Respond != nil) && f.RefundForm != nil && len(f.RefundForm.Errors) > 0 {
		r.Warn(&f.RefundForm.Errors, "has no effect: there is no upstream that could fail", "leave it out")
	}
}

// name gives each route without a name one made of its path.
func (r *routes) name(forms []*Route) {
	taken := map[string]*Route{}
	for _, f := range forms {
		if !r.token(&f.Name, f.Name) {
			continue
		}
		if first, ok := taken[f.Name]; ok {
			r.Wrong(&f.Name, "two routes are called "+f.Name+", the first at "+r.Location(first).Position.String(), "give one of them another name")
			continue
		}
		taken[f.Name] = f
	}
	number := map[string]int{} // the last that was tried, by what the path makes
	for _, f := range forms {
		if f.Name != "" || !r.Valid(&f.Name) {
			continue
		}
		base := tokenOf(f.Match.Path, "route")
		name := base
		for taken[name] != nil {
			number[base] = max(number[base], 1) + 1
			name = base + "-" + strconv.Itoa(number[base])
		}
		if name != base {
			r.Warn(f, "has no name and is called "+name+" for its place among the routes of this path", "give it a name, so that its counts stay its own when routes are added")
		}
		f.Name, taken[name] = name, f
	}
}

// tokenOf makes a token-safe name of any text: /v1/sms/send is v1-sms-send. The
// prefix stands before one that would not begin with a letter.
func tokenOf(text, prefix string) string {
	text = strings.ReplaceAll(text, "*", "all")
	words := strings.FieldsFunc(text, func(c rune) bool {
		return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.", c)
	})
	name := strings.Join(words, "-")
	if !tokenSafe.MatchString(name) {
		name = strings.TrimSuffix(prefix+"-"+name, "-")
	}
	return name
}

func (r *routes) path(f *Match) pattern {
	if f.Path == "" {
		if f.Domain == "" && r.Given(f) && r.Valid(f) && !r.Given(&f.Path) {
			r.Wrong(f, "has no path", "write path: below it")
		}
		return pattern{} // descriptors have none, or it is already reported
	}
	p, fault := parsePath(f.Path)
	if fault.what != "" {
		r.Wrong(&f.Path, fault.what, fault.instead)
	} else if instead := foreignPath(f.Path); instead != "" {
		r.Warn(&f.Path, "no parameter and no regexp: these characters are matched as they are", instead)
	}
	return p
}

func (r *routes) match(f, made *Match, p pattern) {
	for i, m := range f.Methods {
		if slices.Index(f.Methods, m) < i && m != "" {
			r.Wrong(&f.Methods[i], m+" is given twice", "write it once")
		}
	}
	host := strings.ToLower(f.Host)
	if name := strings.TrimPrefix(host, "*."); host != "" && (!form.IsHostname(name) || strings.HasSuffix(name, ".")) {
		r.Wrong(&f.Host, form.Quote(f.Host)+" is not a host", "write api.example.com or *.example.com, without a port")
	}
	if _, unnamed := f.Query[""]; unnamed {
		r.WrongName(form.Entry{Of: &f.Query}, "a parameter has no name", "write for example type: sms")
	}
	made.Host, made.Path, made.Params, made.Descriptor = host, p.text, p.params, r.entries(f)
	made.Headers = r.headers(&f.Headers, "X-App", reserved{elsewhere: map[string]fault{"Host": {"Host is no header to match", "write host: beside path:"}}})
}

// destination checks that a route goes to one place, and has nothing that only
// another kind of place could use.
func (r *routes) destination(f *Route) {
	places := 0
	for _, place := range []any{&f.UpstreamName, &f.Redirect, &f.Respond} {
		if r.Given(place) {
			places++
		}
	}
	needsNone := r.main.Listen.onlyDecides() || f.Match.Domain != ""
	isRoute := r.Given(&f.Match) || r.Given(&f.Name)
	forwards := places == 1 && r.Given(&f.UpstreamName)
	r.refuse([]finding{
		{places == 0 && !needsNone && isRoute, f, "route has no upstream, redirect or respond", "write upstream:, redirect: or respond: below it"},
		{places > 1, f, "has more than one destination", "keep one of upstream, redirect and respond"},
		{!forwards && f.RewriteForm != nil, f.RewriteForm, "there is no upstream", "leave it out"},
		{!forwards && f.WebSocket, &f.WebSocket, "there is no upstream for websocket", "leave it out"},
	})
}

// missing returns the path parameters that a key is read from and that a path does not have. spec is nil after a problem.
func missing(spec *key.Spec, has []string) []string {
	if spec == nil {
		return nil
	}
	others := func(o key.Origin) bool { return o.Source != key.Path || slices.Contains(has, o.Name) }
	return view.Each(slices.DeleteFunc(spec.Required(), others), originName)
}

func originName(o key.Origin) string { return o.Name }

// Fields returns the names of the header fields that r reads besides its keys: it is matched by them, or knows repeats.
func (r *Route) Fields() []string {
	names := slices.Collect(maps.Keys(r.Match.Headers))
	if r.Idempotency != nil {
		names = append(names, r.Idempotency.Header)
	}
	return names
}

func (r *routes) idempotency(f *Idempotency) *Idempotency {
	if f.Life > limiter.MaxWindow {
		r.Wrong(&f.Life, "is longer than can be remembered", "write at most 366d")
	}
	return &Idempotency{r.header(&f.Header, "Idempotency-Key"), f.Life, f.Repeats}
}
