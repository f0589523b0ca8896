package config

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/weir-proxy/weir/proxy/key"
)

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

// warnBans warns of bans by nothing but a phone number or an e-mail address, which anybody can send for others.
func (l *limits) warnBans(f *limitForm, limit *Limit) {
	if limit.Penalty == nil || limit.Key == nil {
		return
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
	if !onlyDigits(spec) {
		return
	}
	names := []string{name, spec.SetHeader, spec.From.Name}
	for _, o := range spec.Equal {
		names = append(names, o.Name)
	}
	if slices.ContainsFunc(names, phoneName.MatchString) {
		k.Warn(f, digitsOnPhone, writeE164)
		k.warned = append(k.warned, spec)
	}
}

// warnUnnormalized warns of a key that is named like a phone number and that nothing brings into
// one form.
func (k *keys) warnUnnormalized(pointer any, name string, spec *key.Spec) {
	if !spec.From.Source.IsSpelled() {
		return
	}
	if len(spec.Normalize) == 0 && (phoneName.MatchString(name) || phoneName.MatchString(spec.From.Name)) {
		k.Warn(pointer, asWritten, fmt.Sprintf(addE164, spec.From))
	}
}

// phones warns of limits of a route that texts or calls, on a key that could be the
// number.
func (r *routes) phones(f *routeForm, made *Route) {
	if !texting.MatchString(f.Match.Path) && !texting.MatchString(f.Name) {
		return
	}
	for _, l := range made.Limits {
		spec := l.Key
		if spec == nil || !onlyDigits(spec) || slices.Contains(r.keys.warned, spec) || noPhone.MatchString(spec.Name) || noPhone.MatchString(spec.From.Name) {
			continue
		}
		r.keys.warned = append(r.keys.warned, spec)
		r.Warn(f, "if "+spec.Name+" is a phone number: "+digitsOnPhone, writeE164)
	}
}

func onlyDigits(s *key.Spec) bool {
	return slices.Contains(s.Normalize, key.Digits) && !slices.Contains(s.Normalize, key.E164)
}
