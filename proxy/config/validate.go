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

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// tokenSafe matches names that are valid in header fields, metrics and keys of a store.
var tokenSafe = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// compile converts forms into a Config, or returns all problems.
func (r *loader) compile(f *file) (*Config, error) {
	r.decoded = r.Decoded()
	r.Problems() // of texts are known from here on
	c := &Config{
		Version:   f.Version,
		Listen:    r.listen(&f.Listen),
		Admin:     r.admin(&f.Admin),
		Store:     f.Store,
		Redis:     r.redis(&f.Redis),
		Reload:    r.reload(&f.Reload, f.Store),
		ClientIP:  r.clientIP(&f.ClientIP),
		Privacy:   r.privacy(&f.Privacy),
		Defaults:  f.Defaults,
		Errors:    r.errors(f.Errors),
		Alerts:    r.alerts(&f.Alerts),
		AccessLog: r.accessLog(&f.AccessLog),
		Traces:    r.traces(&f.Traces),
		form:      f,
	}
	c.Defaults.NewKeys = r.newKeys(&f.Defaults.Guard)
	c.Defaults.Guard, c.Defaults.Limits, c.Defaults.Lists = "", nil, nil
	r.listeners(f)
	r.decideListener(f)
	r.ineffective(f)
	keys := newKeys(r, &f.Keys, r.tokens(f.JWT))
	c.Keys = keys.all()
	upstreams := newUpstreams(r, keys, f)
	c.Upstreams = upstreams.byName
	literals := literals{r, c.Privacy, c.ClientIP.IPv6Prefix}
	lists := newLists(r, keys, literals, &f.Lists)
	prices := r.prices(keys, f.Prices)
	routes := &routes{loader: r, keys: keys, upstreams: upstreams, defaults: f.Defaults,
		defaultNewKeys: c.Defaults.NewKeys, literals: literals, lists: lists, prices: prices, priceSection: &f.Prices, used: map[string]bool{}, store: c.Store, served: &f.Listen, errorTexts: c.Errors, own: f.Redis.Prefix + ":", trusts: len(c.ClientIP.TrustedProxies) > 0, jwt: f.JWT}
	routes.compileCommon(&f.Limits)
	c.Routes = routes.all(f.Routes)
	unused(f.Limits, routes.common.routes, r.Warn, "no route names this limit", "name it under limits: of a route or of defaults")
	unused(f.Lists, lists.used, r.Warn, "no route has this list", "name it under lists: of a route or of defaults")
	unused(f.Prices, routes.used, r.Warn, "no budget has these prices", "write price: NAME beside budget: of a limit")
	unused(f.Keys, keys.used, r.remark, "nothing uses this key", "name it as key: of a limit or list, or leave it out")
	unused(f.Upstreams, upstreams.used, r.remark, "no route has this upstream", "write upstream: NAME in a route, or leave it out")
	if keys.tokens != nil && !keys.signed {
		r.Warn(f.JWT, "no token is verified: no key is read from one", "write key: jwt:CLAIM of a limit, or leave jwt out")
	}
	r.unconverted(&f.Alerts, c.Routes)
	if len(f.Routes) == 0 && len(r.Problems()) == 0 {
		r.Wrong(f, "there are no routes", "write routes: with at least one match and upstream")
	}
	if len(r.Problems()) > 0 {
		return nil, r.failed()
	}
	c.Tokens = r.verifiers
	c.Hash, c.Files, c.Globs = hex.EncodeToString(r.common.Sum(nil)), r.files, r.globs
	c.Sum, c.Bare, c.opened = hex.EncodeToString(r.hash.Sum(nil)), form.Arrange(r.LiteralSecrets(), r.files), r.later
	c.outputs = r.outputs
	c.written, c.values, c.own = r.Written(), r.values, r.own
	c.Warnings, c.Remarks = form.Arrange(r.Warnings(), r.files), form.Arrange(r.remarks, r.files)
	return c, nil
}

func (r *loader) clientIP(f *ClientIP) ClientIP {
	if f.Header != "" && !httpguts.ValidHeaderFieldName(f.Header) {
		r.Wrong(&f.Header, "not the name of a header", "write for example X-Forwarded-For")
	}
	r.warnTrust(f.TrustedProxies)
	c := *f
	c.Header = http.CanonicalHeaderKey(f.Header)
	return c
}

// warnTrust warns of networks that are all addresses.
func (r *loader) warnTrust(networks []netip.Prefix) {
	for i := range networks {
		if p := &networks[i]; p.IsValid() && p.Bits() == 0 {
			r.Warn(p, "every address is trusted to name the client", "name the networks of your own proxies")
		}
	}
}

// noSecret is the value of the previous secret if there was none.
const noSecret = "none"

func (r *loader) privacy(f *Privacy) Privacy {
	if n := len(f.HashSecret); n > 0 && n < 16 {
		r.Warn(&f.HashSecret, "the secret is short enough to guess", "use 16 characters or more, made at random")
	}
	p := *f
	if p.Rotates = p.Previous != ""; p.Previous == noSecret {
		p.Previous = ""
	}
	if p.Rotates && p.Previous == p.HashSecret {
		r.Wrong(&f.Previous, "is the secret in use", "write the one that was in use before, or none if there was none, or leave it out")
	}
	return p
}

// checkName checks the name before a value, which is that of a key for example.
func (r *loader) checkName(pointer any, name, of string) bool {
	if tokenSafe.MatchString(name) {
		return true
	}
	r.WrongName(pointer, form.Quote(name)+" is not a valid name for "+of, "begin with a letter, followed by letters, digits, _ . or -")
	return false
}

// fault reports an error that says what to write instead after a semicolon.
func (r *loader) fault(pointer any, err error) {
	what, instead, _ := strings.Cut(err.Error(), "; ")
	r.Wrong(pointer, what, instead)
}

// token reports a problem if text is not token-safe. An empty text has been reported
// already.
func (r *loader) token(pointer any, text string) bool {
	if text != "" && !tokenSafe.MatchString(text) {
		r.Wrong(pointer, form.Quote(text)+" is not a valid name", "begin with a letter, followed by letters, digits, _ . or -")
		return false
	}
	return text != ""
}

// A restart is a limit that counts under another name than before.
type restart struct {
	limit  *Limit
	before string // the ID under which it was counted
}

// restarts returns the limits of is that are probably limits of was under another name: called the same,
// or on the same key with the same rates. Their counts start anew.
func restarts(was, is *Config) (all []restart) {
	counted := func(c *Config, id string) bool {
		return slices.ContainsFunc(c.Limits(), func(l *Limit) bool { return l.ID == id })
	}
	gone := slices.DeleteFunc(was.Limits(), func(l *Limit) bool { return counted(is, l.ID) })
	for _, l := range is.Limits() {
		if counted(was, l.ID) {
			continue
		}
		for _, same := range []func(*Limit) bool{
			func(o *Limit) bool { return o.FullName() == l.FullName() },
			func(o *Limit) bool { return o.Name == l.Name && o.Key.Name == l.Key.Name },
			func(o *Limit) bool { return o.Key.Name == l.Key.Name && reflect.DeepEqual(o.Rates, l.Rates) },
		} {
			if i := slices.IndexFunc(gone, same); i >= 0 {
				all = append(all, restart{l, gone[i].ID})
				gone = slices.Delete(gone, i, i+1)
				break
			}
		}
	}
	return all
}

// keep says how the counts of r are kept.
func (r restart) keep() string { return "write was: " + r.before + " to keep its counts" }

const startsAnew = "starts anew: it was counted as another limit"

// Restarts returns warnings about limits whose counts start anew, because they have other names than in
// was.
func Restarts(was, is *Config) (warnings []Problem) {
	for _, r := range restarts(was, is) {
		warnings = append(warnings, Problem{Position: r.limit.Position, Path: r.limit.FullName(), What: startsAnew, Instead: r.keep()})
	}
	return warnings
}
