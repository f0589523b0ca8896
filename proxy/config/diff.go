package config

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// A Change is a change of one part of a configuration.
type Change struct {
	What string `json:"what"`          // limit, route, key, list, upstream or section
	Name string `json:"name"`          // of a limit as LimitName
	Was  string `json:"was,omitempty"` // as YAML, without defaults; empty if it is added
	Is   string `json:"is,omitempty"`  // empty if it is removed
	// Fields are what differs if Was and Is are both known.
	Fields []FieldChange `json:"fields,omitempty"`
	// Note says that counts start anew, and how they are kept.
	Note string `json:"note,omitempty"`
}

// A FieldChange is a change of one field.
type FieldChange struct {
	Name string `json:"name"`
	Was  string `json:"was,omitempty"` // empty if it has its default
	Is   string `json:"is,omitempty"`
}

// String is one line: "limit sms-send.phone added: {…}", or of a changed limit only what differs:
// "sms-send.phone: 5/1m → 3/1m".
func (c Change) String() string {
	if c.Note != "" {
		return c.text() + " (" + c.Note + ")"
	}
	return c.text()
}

func (c Change) text() string {
	switch {
	case c.Was == c.Is:
		return c.Name
	case c.Was == "":
		return c.What + " " + c.Name + " added: " + c.Is
	case c.Is == "":
		return c.What + " " + c.Name + " removed: " + c.Was
	case len(c.Fields) == 0:
		return c.What + " " + c.Name + ": " + c.Was + " → " + c.Is
	}
	var all []string
	for _, f := range c.Fields {
		name := f.Name + ": "
		if c.What == "limit" && f.Name == "rates" {
			name = ""
		}
		all = append(all, name+cmp.Or(f.Was, "default")+" → "+cmp.Or(f.Is, "default"))
	}
	name := c.Name
	if c.What != "limit" {
		name = c.What + " " + name
	}
	return name + ": " + strings.Join(all, "; ")
}

// fieldChanges returns the fields that differ between two parts.
func fieldChanges(was, is string) (changes []FieldChange) {
	names, before := form.Fields(was)
	more, after := form.Fields(is)
	if names == nil || more == nil {
		return nil
	}
	unifyRates(before)
	unifyRates(after)
	for _, name := range view.AddNew([]string{"rates"}, slices.Concat(names, more)...) {
		if before[name] != after[name] {
			changes = append(changes, FieldChange{name, before[name], after[name]})
		}
	}
	return changes
}

// unifyRates writes rate: 5/1m and rates: [5/1m] in the same way.
func unifyRates(fields map[string]string) {
	if rate, one := fields["rate"]; one {
		fields["rates"] = rate
		delete(fields, "rate")
	} else if rates, several := fields["rates"]; several {
		fields["rates"] = strings.TrimSuffix(strings.TrimPrefix(rates, "["), "]")
	}
}

// Compare returns the changes from was to is: limits first, then routes, keys, lists,
// upstreams and the other sections, by name. Contents of files that the configuration names
// are not compared. Secrets, values of sensitive keys in lists and overrides, and values of
// environment variables are not shown; only that they differ.
func Compare(was, is *Config) []Change {
	once := []byte(rand.Text())
	after := is.Parts(once)
	changes := CompareParts(was.Parts(once), after)
	for _, r := range Restarts(was, is) {
		i := slices.IndexFunc(changes, func(c Change) bool { return (c.What == "limit" || c.What == "section") && c.Name == r.Path })
		if i < 0 { // something else has changed, such as its key
			i, changes = 0, slices.Insert(changes, 0, Change{What: "limit", Name: r.Path, Was: after[0][r.Path], Is: after[0][r.Path]})
		}
		changes[i].Note = r.What + "; " + r.Instead
	}
	return changes
}

// Parts are the texts of all parts of a configuration, by kind, as in partNames, and name.
type Parts []map[string]string

// CompareParts is Compare for configurations of other machines, whose parts were hashed with one secret.
func CompareParts(before, after Parts) []Change {
	changes := []Change{}
	if len(before) != len(partNames()) || len(after) != len(partNames()) {
		return changes
	}
	for i, what := range partNames() {
		names := maps.Clone(before[i])
		maps.Copy(names, after[i])
		for _, name := range form.SortedKeys(names) {
			if before[i][name] != after[i][name] {
				was, is := before[i][name], after[i][name]
				changes = append(changes, Change{What: what, Name: name, Was: was, Is: is, Fields: fieldChanges(was, is)})
			}
		}
	}
	return changes
}

// partNames returns the kinds of parts of a file.
func partNames() []string { return []string{"limit", "route", "key", "list", "upstream", "section"} }

// Parts returns the parts of c. Secrets, and the values of lists and overrides, are represented by a hash
// with once.
func (c *Config) Parts(once []byte) Parts {
	f, concealed := c.form, c.concealed()
	line := func(form any) string {
		return c.written.Line(form, concealed, func(text string) string { return Brief(once, text) })
	}
	limits := lines(f.LimitForms, line)
	routes := map[string]string{}
	for _, r := range f.Routes {
		for _, l := range r.LimitForms {
			if l.Named == "" {
				limits[view.LimitName(r.Name, l.Name)] = line(l)
				concealed[l] = true
			}
		}
		routes[r.Name] = line(r)
	}
	sections := map[string]string{}
	for name, form := range map[string]any{
		"client_ip": &f.ClientIP, "privacy": &f.Privacy, "defaults": &f.Defaults, "errors": f.ErrorTexts, "alerts": &f.Alerts, "access_log": &f.AccessLog, "traces": &f.Traces, "jwt": f.JWT,
	} {
		if !reflect.ValueOf(form).IsNil() {
			sections[name] = line(form)
		}
	}
	for name, p := range f.PriceForms {
		sections["prices."+name] = line(p)
	}
	return Parts{limits, routes, lines(f.KeyForms, line), lines(f.ListForms, line), lines(f.Upstreams, line), sections}
}

// Brief returns a short hash of text, to compare it with others.
func Brief(once []byte, text string) string {
	mac := hmac.New(sha256.New, once)
	mac.Write([]byte(text))
	return fmt.Sprintf("%x", mac.Sum(nil)[:3])
}

// lines returns the text of each of all.
func lines[T any](all map[string]*T, line func(any) string) map[string]string {
	made := map[string]string{}
	for name, v := range all {
		made[name] = line(v)
	}
	return made
}

// Effective returns the configuration as YAML, with all defaults filled in and included
// files merged. Secrets are masked, environment variables are named, and values of sensitive keys in lists and overrides
// are left out; a comment says how many. Loading the result gives the same configuration, except for these.
func (c *Config) Effective() []byte {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	_ = encoder.Encode(c.written.Encode(c.form, c.concealed())) // a form can be encoded
	return b.Bytes()
}

// ShownRoute returns r with its texts as they are written, for others than those who set the environment variables in them.
func (c *Config) ShownRoute(r *Route) *Route {
	f, w, shown := r.form, c.written, *r
	shown.Match.Host, shown.Match.Path = w.Text(&f.Match.Host, r.Match.Host), w.Text(&f.Match.Path, r.Match.Path)
	shown.Match.Headers, shown.Match.Query = w.Texts(&f.Match.Headers), w.Texts(&f.Match.Query)
	switch {
	case f.Redirect != nil:
		shown.Redirect = &Redirect{w.Text(&f.Redirect.To, f.Redirect.To), f.Redirect.Status}
	case f.Respond != nil:
		shown.Respond = &Respond{f.Respond.Status, w.Text(&f.Respond.Body, f.Respond.Body), f.Respond.ContentType, w.Texts(&f.Respond.Headers)}
	case f.RewriteForm != nil:
		if r.Rewrite.AddPrefix != "" {
			shown.Rewrite.AddPrefix = "/" + strings.TrimPrefix(w.Text(&f.RewriteForm.AddPrefix, r.Rewrite.AddPrefix), "/")
		}
		shown.Rewrite.Request.Set = map[string]string{}
		for name, text := range w.Texts(&f.RewriteForm.Request.Set) {
			shown.Rewrite.Request.Set[http.CanonicalHeaderKey(name)] = text
		}
		shown.Rewrite.Host = shown.Rewrite.Request.Set["Host"]
		delete(shown.Rewrite.Request.Set, "Host")
	}
	return &shown
}

// A Source is the source of the configuration.
type Source string

// The sources.
const (
	SourceFile  Source = "file"  // the file with which Weir was started
	SourceRedis Source = "redis" // what was pushed to all nodes; Store is StoreRedis
)

// reload compiles the reload section.
func (l *loader) reload(f, made *Reload) {
	made.Keep = l.writes(&f.Keep)
	l.refuse([]finding{
		{f.Source == SourceRedis && l.main.Store != StoreRedis && l.Valid(&f.Source), &f.Source, "there is no Redis to load it from", "write store: redis, or source: file"},
		{f.Source == SourceFile && f.Keep != "", &f.Keep, "only what is pushed is kept", "write source: redis beside it, or leave it out"},
	})
}

// View returns what operators see of r.
func (c *Config) View(r *Route) view.Route {
	r = c.ShownRoute(r)
	v := view.Route{
		Name: r.Name, Position: r.Position.String(), Host: r.Match.Host, Methods: r.Match.Methods, Path: r.Match.Path,
		Headers: r.Match.Headers, Query: r.Match.Query,
		Limits: view.Each(r.Limits, func(l *Limit) string { return l.Name }), Lists: view.Each(r.Lists, func(l *List) string { return l.Name }),
	}
	switch {
	case r.Redirect != nil:
		v.Redirect = r.Redirect.To
	case r.Respond != nil:
		v.Respond = r.Respond.Status
	case r.Upstream != nil:
		v.Upstream = r.Upstream.Name
	}
	if r.NewKeys != (limiter.Rate{}) {
		v.NewKeys = r.NewKeys.String()
	}
	return v
}

// View returns what operators see of l.
func (l *Limit) View() view.Limit {
	v := view.Limit{
		Route: l.Route, Routes: l.Routes, Name: l.Name, Position: l.Position.String(), Key: l.Key.Name, Distinct: nameOf(l.Distinct),
		Rates: l.RateTexts(), Algorithm: l.Algorithm.String(), Burst: l.Burst, Mode: string(l.Mode), Scope: l.Scope.String(),
		OnStoreFailure: string(l.OnStoreFailure), Exposed: l.Expose, Overrides: len(l.Overrides), Redisson: l.RedissonName,
		Plans: slices.Sorted(maps.Keys(l.Plans)),
	}
	if l.Key.Join != nil {
		v.Parts = view.Each(l.Key.Components(), nameOf)
	}
	if l.Wait > 0 {
		v.Wait = limiter.WindowName(l.Wait)
	}
	if p := l.Prices; p != nil {
		v.Permit, v.AmountText = p.Text(1), p.Text
	}
	return v
}

// Explained returns what is explained of l whatever the request is.
func (l *Limit) Explained() view.ExplainedLimit {
	v := view.ExplainedLimit{Limit: l.View(), Cost: 1, Windows: []view.ExplainedWindow{}}
	if l.Ahead > 0 {
		v.Ahead = l.Ahead.String()
	}
	if to := l.Return; to != nil {
		v.Returned = "returned by " + to.Route + " for the same " + to.Subject.Name
	}
	if s := l.StepUp; s != nil {
		v.StepUp = "then 403 with the challenge " + s.Challenge + ", and passes with a token for its " + s.Key.Name + " in " + s.Header + " at " + strings.Join(view.Each(s.Rates, limiter.Rate.String), " ")
	}
	if p := l.Penalty; p != nil {
		v.Penalty = "a ban of " + limiter.WindowName(p.Ban) + " at the next refusal"
		if p.After > 1 {
			v.Penalty = "a ban of " + limiter.WindowName(p.Ban) + " after refusals at the rate " + limiter.Rate{Count: p.After, Window: l.LongestWindow()}.String()
		}
	}
	return v
}

// nameOf returns the name of a key; "" if there is none.
func nameOf(s *key.Spec) string {
	if s == nil {
		return ""
	}
	return s.Name
}

// RateText returns a rate of l as operators write and read it: 5/1h, 400 EUR/1d of a budget, 4 at a time, or the
// steps of a cooldown.
func (l *Limit) RateText(rate limiter.Rate) string {
	switch {
	case l.Algorithm.HasLeases():
		return strconv.FormatInt(rate.Count, 10) + " at a time"
	case l.Algorithm.HasSteps():
		return strings.Join(view.Each(l.Steps, limiter.WindowName), " ")
	}
	return l.writtenRate(rate)
}

// RateTexts returns all rates of l; a cooldown has one.
func (l *Limit) RateTexts() []string { return view.Each(l.Rates, l.RateText) }

// LongestWindow returns the longest window of the rates of l.
func (l *Limit) LongestWindow() (window time.Duration) {
	for _, r := range l.Rates {
		window = max(window, r.Window)
	}
	return window
}
