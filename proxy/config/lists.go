package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// maxFaults is the maximum number of problems reported for one file of a list.
const maxFaults = 20

// An Action is the effect of a list: an allowlist, a denylist, an access control list (ACL).
type Action string

// The actions.
const (
	Bypass     Action = "bypass" // the limits of the route do not apply
	DenyListed Action = "deny"   // the request is refused with 403
	OnlyListed Action = "only"   // a request whose key is not on the list is refused with 403
)

// Refuses reports whether a list with this action refuses requests.
func (a Action) Refuses() bool { return a != Bypass }

// prefixes is the value of match for a list of prefixes.
const prefixes = "prefix"

// list makes a list; nil after a problem.
func (l *loader) list(name string, f *List) *List {
	l.checkName(f, name, "a list")
	if l.Given(&f.Values) == (f.File != "") && l.Valid(f) {
		l.Wrong(f, "has not exactly one of values and file", "write values: [one, two], or file: with the name of a file of one value a line")
	}
	spec := l.keys.use(f.Of)
	if !l.oneText(f.Of, spec) {
		return nil
	}
	if f.Match == prefixes && !spec.HasPrefixes() {
		l.Wrong(&f.Match, "the values of the key "+spec.Name+" have no prefixes", "leave it out; the values of an address may be networks")
		return nil
	}
	made := &List{Name: name, Key: spec, Members: l.members(name, f, spec), Action: f.Action}
	if made.Action == OnlyListed && made.Members != nil && made.Members.Len() == 0 {
		l.Warn(f, "the list is empty: its routes refuse every request with 403", "give it a value")
	}
	return made
}

// members reads the values, in place or from the list's file.
func (l *loader) members(name string, f *List, spec *key.Spec) *key.List {
	parse, what, instead := key.ParseList, "not a value of the key "+spec.Name, "write it as clients send it"
	if f.Match == prefixes {
		parse, what, instead = key.ParsePrefixes, "not a prefix of the key "+spec.Name, "write the first characters of keys; for numbers the calling code and further digits, as +4915"
	}
	v := Value{of: &f.Values, Spec: spec, Prefix: f.Match == prefixes}
	if f.File != "" {
		text, ok := l.listed(&f.File, v)
		if !ok {
			return nil
		}
		members, problems := parse(spec, key.Lines(text))
		l.faults("lists."+name, what, text, problems)
		return members
	}
	for i := range f.Values {
		at, text := &f.Values[i], strings.TrimSpace(f.Values[i])
		one, problems := parse(spec, slices.Values(f.Values[i:i+1]))
		comment := strings.HasPrefix(text, "#") // as in a file, from which it was copied
		if *at != "" && (len(problems) > 0 || one.Len() == 0 || comment) {
			l.Wrong(at, form.Quote(*at)+" is "+what, cmp.Or(insteadOf(problems), instead))
		}
		v.Position, v.Text, v.Written = l.Location(at).Position, text, l.Written[at]
		l.made.values = append(l.made.values, v)
	}
	all, _ := parse(spec, slices.Values(f.Values))
	return all
}

// insteadOf returns what to write instead of the first value with a problem; "" if that is unknown.
func insteadOf(problems []key.Problem) string {
	if len(problems) == 0 {
		return ""
	}
	_, instead, _ := strings.Cut(problems[0].Err.Error(), "; ")
	return instead
}

// listed reads the file of a list, called name, whose values are described by v. The file is the last
// of l.made.Files then.
func (l *loader) listed(name *string, v Value) (text string, ok bool) {
	text, ok = l.text(name, "write one value a line")
	if ok {
		v.File = l.made.Files[len(l.made.Files)-1]
		l.made.values = append(l.made.values, v)
	}
	return text, ok
}

// text reads a file of lines that is pushed with the configuration. It is the last of l.made.Files then.
func (l *loader) text(name *string, instead string) (text string, ok bool) {
	data, ok := l.attach(name, maxList)
	if !ok {
		return "", false
	}
	path := l.made.Files[len(l.made.Files)-1]
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		l.made.lined[path] = withoutLines
	case bytes.HasSuffix(data, []byte("\n")):
		l.made.lined[path] = afterLine
	default:
		l.made.lined[path] = withinLine
	}
	if l.source.Owner(path) != OfConfig {
		l.Wrong(name, form.Quote(*name)+" was not sent with this configuration", "weir push and weir simulate on the command line read it beside this file")
		return "", false
	}
	if rel, err := filepath.Rel(filepath.Dir(l.made.Files[0]), path); err == nil && !filepath.IsAbs(*name) {
		*name = rel // as the main file would say it
	}
	if !utf8.Valid(data) {
		l.Wrong(name, form.Quote(*name)+" is not text in UTF-8", instead)
		return "", false
	}
	return string(data), true
}

// faults tells that lines of the last of l.made.Files, which has the text for the field at path, are wrong, and where.
func (l *loader) faults(path, what, text string, problems []key.Problem) {
	if len(problems) == 0 {
		return
	}
	p := form.Location{Position: Position{File: l.made.Files[len(l.made.Files)-1]}, Path: path}
	lines := strings.Split(text, "\n")
	for i, fault := range problems {
		p.Line = fault.Line
		if i == maxFaults {
			p.Column = 1
			l.Add(p, "and "+strconv.Itoa(len(problems)-i)+" more lines like these", "")
			return
		}
		line := strings.TrimPrefix(lines[fault.Line-1], "\uFEFF")
		p.Column = 1 + utf8.RuneCountInString(line) - utf8.RuneCountInString(strings.TrimLeftFunc(line, unicode.IsSpace))
		text, instead, _ := strings.Cut(fault.Err.Error(), "; ")
		if errors.Is(fault.Err, key.ErrTwice) || what == "" {
			l.Add(p, text, instead)
			continue
		}
		l.Add(p, what, cmp.Or(instead, "write it as clients send it"))
	}
}

// listsOf returns the lists of a route: those that it names, and those of defaults.
func (r *routes) listsOf(f *Route, p pattern) []*List {
	var made []*List
	add := func(names list, i int) {
		if found := r.listNamed(names, i); found != nil {
			r.parameters(&names[i], found.Key, p.params)
			made = append(made, found)
		}
	}
	defaults := r.main.Defaults.Lists
	for i, name := range f.ListNames {
		if name == none && r.main.ListForms[name] == nil {
			defaults = nil
			continue
		}
		add(f.ListNames, i)
	}
	for i, name := range defaults {
		if !slices.Contains(f.ListNames, name) {
			add(defaults, i)
		}
	}
	return made
}

// listNamed finds the list that a route names; nil after a problem.
func (l *loader) listNamed(names list, i int) *List {
	name := names[i]
	found, ok := l.lists[name]
	switch {
	case name == "":
		return nil // already reported
	case !ok && l.Lacks(&l.main.ListForms, name):
		l.Wrong(&names[i], "there is no list "+form.Quote(name), cmp.Or(form.Near(name, form.SortedKeys(l.lists)), "define it at the top, lists: {"+name+": {key: KEY, values: [VALUE], action: deny}}"))
	case slices.Index(names, name) < i:
		l.Wrong(&names[i], name+" is given twice", "write it once")
		found = nil
	}
	l.used[l.main.ListForms[name]] = true
	return found
}

var (
	// phoneName finds a name that somebody gave to a phone number. X-Hotel and
	// cancelled are none.
	phoneName = regexp.MustCompile(`(?i)phone|mobile|msisdn|whatsapp|handset|(^|[^a-z])(tel|telno|cell|fax|sms|callee|caller)([^a-z]|$)`)
	// mailName finds a name that somebody gave to an e-mail address.
	mailName = regexp.MustCompile(`(?i)(^|[^a-z])e?-?mail([^a-z]|$)`)
	// secretName finds a name of what only its owner may know.
	secretName = regexp.MustCompile(`(?i)(authorization|cookie|token|api[-_]?key|secret|passw(or)?d|session(-?_?id)?|credentials?|(^|[^a-z])sid)$`)
	// texting finds a route that texts or calls somebody.
	texting = regexp.MustCompile(`(?i)(^|[^a-z])(sms|call|calls|dial|text|texts|whatsapp|voice)([^a-z]|$)`)
	// noPhone finds a name that says that the digits are something else.
	noPhone = regexp.MustCompile(`(?i)(^|[^a-z])(code|pin|otp|id|ip|user|account|order|token|card|zip|count|size|amount)([^a-z]|$)`)
)

const (
	digitsOnPhone = "under digits one phone has many keys: with and without its country code, and with any extension"
	writeE164     = "write e164, or {as: e164, default_region: US} for numbers that may come without a country code"
	asWritten     = "as it is sent one phone has many keys: each spelling of the number is one"
	addE164       = "write {from: %s, normalize: e164}, or normalize: trim if it is no phone number"
)

// isSecret reports whether the values at an origin are secrets: all of cookies, and what is called so.
func isSecret(o key.Origin) bool {
	return o.Source.IsSecret() || o.Source.IsNamed() && !o.Source.IsSigned() && secretName.MatchString(o.Name)
}

// isTrue reports whether b is given, and true.
func isTrue(b *bool) bool { return b != nil && *b }

// conceal masks a key whose values are secrets, as far as their names tell.
func conceal(spec *key.Spec) {
	spec.Secret = isSecret(spec.From) || slices.ContainsFunc(spec.Equal, isSecret)
}

// penalty checks the bans of a limit. It warns of those by nothing but a phone number or an e-mail address, which anybody can
// send for others.
func (l *limits) penalty(f, limit *Limit) {
	if f.Penalty == nil {
		return
	}
	if err := limiter.CheckBan(f.Penalty.Ban); err != nil {
		l.Wrong(&f.Penalty.Ban, "is longer than a ban may be", "write at most 366d")
	}
	if limit.Key == nil {
		return // already reported
	}
	ofOthers := func(s *key.Spec) bool {
		return s.Of != nil || !s.From.Source.IsSigned() && (s.Phone != nil || phoneName.MatchString(s.From.Name) || mailName.MatchString(s.From.Name))
	}
	if parts := limit.Key.Components(); !slices.ContainsFunc(parts, func(s *key.Spec) bool { return !ofOthers(s) }) {
		l.Warn(f.Penalty, "anybody can send "+limit.Key.Name+" of somebody else, and so ban it", "write the penalty for a key that others cannot send, such as client_ip, or for both: {join: [client_ip, "+limit.Key.Name+"]}")
	}
}

// phone warns of a key that is named like a phone number and that only digits
// brings into one form.
func (k *keys) phone(f *normalForm, name string, spec *key.Spec) {
	names := append([]string{name, spec.SetHeader, spec.From.Name}, view.Each(spec.Equal, originName)...)
	if onlyDigits(spec) && slices.ContainsFunc(names, phoneName.MatchString) {
		k.Warn(f, digitsOnPhone, writeE164)
		k.warned = append(k.warned, spec)
	}
}

// warnUnnormalized warns of a key that is named like a phone number and that nothing brings into
// one form.
func (k *keys) warnUnnormalized(pointer any, name string, spec *key.Spec) {
	if spec.From.Source.IsSpelled() && len(spec.Normalize) == 0 && (phoneName.MatchString(name) || phoneName.MatchString(spec.From.Name)) {
		k.Warn(pointer, asWritten, fmt.Sprintf(addE164, spec.From))
	}
}

// phones warns of limits of a route that texts or calls, on a key that could be the
// number.
func (r *routes) phones(made *Route) {
	if !texting.MatchString(made.form.Match.Path) && !texting.MatchString(made.Name) {
		return
	}
	for _, l := range made.Limits {
		s := l.Key
		if s != nil && onlyDigits(s) && !slices.Contains(r.keys.warned, s) && !noPhone.MatchString(s.Name) && !noPhone.MatchString(s.From.Name) {
			r.keys.warned = append(r.keys.warned, s)
			r.Warn(made.form, "if "+s.Name+" is a phone number: "+digitsOnPhone, writeE164)
		}
	}
}

func onlyDigits(s *key.Spec) bool {
	return slices.Contains(s.Normalize, key.Digits) && !slices.Contains(s.Normalize, key.E164)
}
