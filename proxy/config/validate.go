package config

import (
	"encoding/hex"
	"net/http"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// tokenSafe matches names that are valid in header fields, metrics and keys of a store.
var tokenSafe = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// compile converts forms into a Config, or returns all problems.
func (l *loader) compile(f *Config) (*Config, error) {
	l.decoded = l.Decoded()
	l.Problems() // of texts are known from here on
	c := l.made
	c.form, l.main = f, f
	f.Include = list{} // it has what these files have
	c.Listen, c.Admin, c.Store, c.Redis, c.Reload, c.ClientIP = f.Listen, f.Admin, f.Store, f.Redis, f.Reload, f.ClientIP
	c.Privacy, c.Defaults, c.Alerts, c.AccessLog, c.Traces = f.Privacy, f.Defaults, f.Alerts, f.AccessLog, f.Traces
	l.listen(&f.Listen, &c.Listen)
	l.admin(&f.Admin, &c.Admin)
	l.redis(&f.Redis, &c.Redis)
	l.reload(&f.Reload, &c.Reload)
	l.clientIP(&f.ClientIP, &c.ClientIP)
	l.privacy(&f.Privacy, &c.Privacy)
	c.Errors = l.errors(nil, f.ErrorTexts)
	l.alerts(&f.Alerts, &c.Alerts)
	l.accessLog(&f.AccessLog, &c.AccessLog)
	l.traces(&f.Traces, &c.Traces)
	c.Defaults.NewKeys = l.newKeys(&f.Defaults.Guard)
	c.Defaults.Guard, c.Defaults.Limits, c.Defaults.Lists = "", nil, nil
	l.listeners(f)
	l.decideListener(f)
	l.ineffective(f)
	l.keys = &keys{loader: l, tokens: l.tokens(f.JWT), parts: map[*key.Spec]int{}}
	l.keys.all()
	l.compileUpstreams()
	for _, name := range form.SortedKeys(f.ListForms) {
		l.lists[name] = l.list(name, f.ListForms[name])
	}
	routes := &routes{loader: l, prices: l.prices(l.keys, f.PriceForms), planLists: map[planList]*key.List{}}
	routes.compileCommon(f.LimitForms)
	c.Routes = routes.all(f.Routes)
	unused(l, f.LimitForms, l.Warn, fault{"no route names this limit", "name it under limits: of a route or of defaults"})
	unused(l, f.ListForms, l.Warn, fault{"no route has this list", "name it under lists: of a route or of defaults"})
	unused(l, f.PriceForms, l.Warn, fault{"no budget has these prices", "write price: NAME beside budget: of a limit"})
	unused(l, f.KeyForms, l.remark, fault{"nothing uses this key", "name it as key: of a limit or list, or leave it out"})
	unused(l, f.Upstreams, l.remark, fault{"no route has this upstream", "write upstream: NAME in a route, or leave it out"})
	returns := func(l *Limit) bool { return l.Return != nil && l.Mode != Off }
	l.warn([]finding{
		{l.keys.tokens != nil && !l.keys.signed, f.JWT, "no token is verified: no key is read from one", "write key: jwt:CLAIM of a limit, or leave jwt out"},
		{l.Given(&f.Alerts.Returned) && !slices.ContainsFunc(c.Limits(), returns), &f.Alerts.Returned,
			"no alert about it is sent: no limit has return_on", "write return_on: {route: NAME, key: KEY} beside a limit, or leave conversion out"},
	})
	if len(f.Routes) == 0 && len(l.Problems()) == 0 {
		l.Wrong(f, "there are no routes", "write routes: with at least one match and upstream")
	}
	if len(l.Problems()) > 0 {
		return nil, l.failed()
	}
	c.Hash, c.Sum, c.written, c.uses = hex.EncodeToString(l.common.Sum(nil)), hex.EncodeToString(l.hash.Sum(nil)), l.Written, l.Uses
	c.Bare, c.Warnings = form.Arrange(l.Secrets, c.Files), form.Arrange(l.Warnings, c.Files)
	c.Remarks = form.Arrange(c.Remarks, c.Files)
	return c, nil
}

func (l *loader) clientIP(f, made *ClientIP) {
	if f.Header != "" && !httpguts.ValidHeaderFieldName(f.Header) {
		l.Wrong(&f.Header, "not the name of a header", "write for example X-Forwarded-For")
	}
	l.warnTrust(f.TrustedProxies)
	made.Header = http.CanonicalHeaderKey(f.Header)
}

// warnTrust warns of networks that are all addresses.
func (l *loader) warnTrust(networks []netip.Prefix) {
	for i := range networks {
		if p := &networks[i]; p.IsValid() && p.Bits() == 0 {
			l.Warn(p, "every address is trusted to name the client", "name the networks of your own proxies")
		}
	}
}

func (l *loader) privacy(f, made *Privacy) {
	if n := len(f.HashSecret); n > 0 && n < leastToken {
		l.Warn(&f.HashSecret, "the secret is short enough to guess", "use 16 characters or more, made at random")
	}
	made.Rotates, made.Previous = f.Previous != "", unlessNone(f.Previous)
	if made.Rotates && made.Previous == f.HashSecret {
		l.Wrong(&f.Previous, "is the secret in use", "write the one that was in use before, or none if there was none, or leave it out")
	}
}

// PreviousHash returns the key of parts with the previous secret, if there is a rotation.
func (p Privacy) PreviousHash(parts []string) (k limiter.Key, rotates bool) {
	if !p.Rotates {
		return k, false
	}
	return key.Hash(p.Previous, parts), true
}

// Hash returns the key of parts with the current secret; see key.Hash.
func (p Privacy) Hash(parts []string) limiter.Key { return key.Hash(p.HashSecret, parts) }

// checkName checks the name before a value, which is that of a key for example.
func (l *loader) checkName(pointer any, name, of string) bool {
	if tokenSafe.MatchString(name) {
		return true
	}
	l.WrongName(pointer, form.Quote(name)+" is not a valid name for "+of, "begin with a letter, followed by letters, digits, _ . or -")
	return false
}

// fault reports an error that says what to write instead after a semicolon.
func (l *loader) fault(pointer any, err error) {
	what, instead, _ := strings.Cut(err.Error(), "; ")
	l.Wrong(pointer, what, instead)
}

// token reports a problem if text is not token-safe. An empty text has been reported
// already.
func (l *loader) token(pointer any, text string) bool {
	return text != "" && !l.refuseFirst([]finding{{!tokenSafe.MatchString(text), pointer, form.Quote(text) + " is not a valid name", "begin with a letter, followed by letters, digits, _ . or -"}})
}

// Restarts returns warnings about the limits of is whose counts start anew: they count apart from what they were in was, or are probably
// limits of was under another name: called the same, or on the same key with the same rates.
func Restarts(was, is *Config) (all []Problem) {
	add := func(l *Limit, what, instead string) {
		all = append(all, Problem{Position: l.Position, Path: l.FullName(), What: "starts anew: it " + what, Instead: instead})
	}
	if from, to := was.Privacy, is.Privacy; from.HashSecret != to.HashSecret && (to.HashSecret == "" || !to.Rotates || to.Previous != from.HashSecret) {
		all = []Problem{{Position: Position{File: is.Files[0]}, Path: "privacy", What: "privacy.hash_secret is another, or gone: counts stay only under a former one that previous_secret names",
			Instead: "write one: without any whoever reads Redis can find phone numbers by trying them"}}
	}
	limits, before := is.Limits(), view.By(was.Limits(), func(l *Limit) string { return l.ID })
	gone := slices.DeleteFunc(was.Limits(), func(l *Limit) bool {
		return slices.ContainsFunc(limits, func(o *Limit) bool { return o.ID == l.ID })
	})
	for _, l := range limits {
		if before := before[l.ID]; before != nil {
			if field := l.countsApart(before, is.Store); field != "" {
				add(l, "has counts of its own under another "+field, "change it back, or expect its rate to be granted once more")
			}
			continue
		}
		for _, same := range []func(*Limit) bool{
			func(o *Limit) bool { return o.FullName() == l.FullName() },
			func(o *Limit) bool { return o.Name == l.Name && o.Key.Name == l.Key.Name },
			func(o *Limit) bool { return o.Key.Name == l.Key.Name && reflect.DeepEqual(o.Rates, l.Rates) },
		} {
			if i := slices.IndexFunc(gone, same); i >= 0 {
				add(l, "was counted as another limit", "write was: "+gone[i].ID+" to keep its counts")
				gone = slices.Delete(gone, i, i+1)
				break
			}
		}
	}
	return all
}

// countsApart returns the field in which l differs from o, which has the same ID, so that a store counts the two apart; "" if there is none.
func (l *Limit) countsApart(o *Limit, by Store) (field string) {
	names := func(l *Limit) []string { return view.Each(l.Key.Components(), nameOf) }
	kept := slices.DeleteFunc(slices.Clone(o.Rates), func(r limiter.Rate) bool {
		return !slices.ContainsFunc(l.Rates, func(s limiter.Rate) bool { return s.Window == r.Window })
	})
	own := l.RedissonName == "" // otherwise that says where it is counted
	for _, d := range []struct {
		differs bool
		field   string
	}{
		{l.RedissonName != o.RedissonName, "redisson_name"}, {own && !slices.Equal(names(l), names(o)), "key"},
		{own && l.Algorithm != o.Algorithm, "algorithm"}, {own && l.Scope != o.Scope && by == StoreRedis, "scope"},
		{own && !l.Algorithm.HasSteps() && len(kept) < min(len(l.Rates), len(o.Rates)), "window"},
	} {
		if d.differs {
			return d.field
		}
	}
	return ""
}

// A finding is what may be wrong with the field at a pointer, and whether it is.
type finding struct {
	wrong         bool
	at            any
	what, instead string
}

// refuse reports everything that is wrong.
func (l *loader) refuse(all []finding) { each(l.Wrong, all) }

// refuseFirst reports the first thing that is wrong, from which others may follow, and whether there is one.
func (l *loader) refuseFirst(all []finding) bool {
	i := slices.IndexFunc(all, func(f finding) bool { return f.wrong })
	if i >= 0 {
		l.refuse(all[i : i+1])
	}
	return i >= 0
}

// warn warns of everything that is probably wrong.
func (l *loader) warn(all []finding) { each(l.Warn, all) }

// each reports everything that is wrong.
func each(report func(pointer any, what, instead string), all []finding) {
	for _, f := range all {
		if f.wrong {
			report(f.at, f.what, f.instead)
		}
	}
}

// A rule says which fields of a form another field excludes or needs.
type rule struct {
	field    string
	excludes string // fields that are reported beside it
	needs    string // a field without which it is reported; empty for none
	what     string // is wrong; NAME stands for the excluded field
	instead  string
}

// combine reports the given fields of f, a pointer to a form, that exclude each other or lack another.
func (l *loader) combine(f any, rules []rule) {
	for _, r := range rules {
		at := form.Field(f, r.field)
		if !l.Given(at) {
			continue
		}
		for name := range strings.FieldsSeq(r.excludes) {
			if other := form.Field(f, name); l.Given(other) {
				l.Wrong(other, strings.ReplaceAll(r.what, "NAME", name), r.instead)
			}
		}
		if r.needs != "" && !l.Given(form.Field(f, r.needs)) {
			l.Wrong(at, r.what, r.instead)
		}
	}
}

// limitRules returns the rules of the fields of a limit.
func limitRules() []rule {
	const separate = "write a separate limit for it"
	return []rule{
		{"budget", "rate rates concurrent distinct cooldown burst redisson_name redisson_version", "", "a budget cannot be combined with NAME", separate},
		{"budget", "return_on", "", "a budget is spent when the message is sent: a used code returns no money", "leave it out, or write a separate limit for it"},
		{"concurrent", "rate rates distinct cooldown overrides plans plan burst count penalty", "", "concurrent cannot be combined with NAME", separate},
		{"concurrent", "wait", "", "it is unknown when requests in progress will end", "write max_connections and queue for the upstream, or leave wait out"},
		{"cooldown", "rate rates distinct overrides plans plan burst cost redisson_name redisson_version", "", "cooldown cannot be combined with NAME", separate},
		{"distinct", "cost burst redisson_name redisson_version", "", "distinct cannot be combined with NAME", separate},
		{"conversion", "budget concurrent distinct cooldown burst redisson_name redisson_version", "", "conversion cannot be combined with NAME", separate},
		{"step_up", "concurrent budget penalty wait redisson_name", "", "step_up cannot be combined with NAME", separate},
		{"return_on", "concurrent distinct cooldown redisson_name redisson_version", "", "return_on cannot be combined with NAME", separate},
		{"rate_from", "concurrent distinct cooldown budget overrides plans burst penalty return_on redisson_name", "", "rate_from cannot be combined with NAME", separate},
		{"lease", "concurrent distinct cooldown budget step_up return_on rate_from count redisson_name", "", "lease cannot be combined with NAME", separate},

		{"price", "", "budget", "there is no budget", "write budget: beside it, for example [400/1d]"},
		{"reset_on", "", "cooldown", "there is no cooldown to reset", "write cooldown: in place of a rate, or leave reset_on out"},
		{"conversion", "", "return_on", "without return_on no request is confirmed", "write return_on: {route: NAME, key: KEY} beside it"},
		{"cost", "", "max_cost", "has no bound: one request could take all", "write max_cost: beside it, for example 10"},
		{"max_cost", "", "cost", "there is no cost", "write cost: with header:NAME or query:NAME, or with reserve: below it, or leave max_cost out"},
		{"max_waiting", "", "wait", "max_waiting needs wait", "write wait: beside it, for example 500ms, or leave max_waiting out"},
		{"redisson_version", "", "redisson_name", "no limiter is shared with Redisson", "write redisson_name, or leave redisson_version out"},
	}
}

// ownAlgorithm reports an algorithm beside a field that is one itself.
func (l *limits) ownAlgorithm(f *Limit) {
	if f.AlgorithmForm == limiter.TokenBucket.String() || f.AlgorithmForm == "" {
		return
	}
	for _, name := range []string{"budget", "concurrent", "cooldown", "distinct", "conversion"} {
		if l.Given(form.Field(f, name)) {
			l.Wrong(&f.AlgorithmForm, strings.Replace(name, "budget", "a budget", 1)+" is a separate algorithm", "leave algorithm out")
			return
		}
	}
}
