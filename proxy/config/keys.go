package config

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// maxParts is the maximum number of texts in a key, including those of joined keys.
const maxParts = 16

// keys compiles keys, each named one once, into made.Keys: nil for one with a problem.
type keys struct {
	*loader
	parts map[*key.Spec]int // maximum number of texts of each
	// tokens verifies bearer tokens for jwt:; nil without a jwt section.
	tokens *key.Tokens
	open   []string    // names being compiled
	signed bool        // a token is read with the section jwt
	warned []*key.Spec // possible phone numbers without normalization
}

// all compiles the named keys.
func (k *keys) all() {
	for _, name := range form.SortedKeys(k.main.KeyForms) {
		f := k.main.KeyForms[name]
		if k.checkName(f, name, "a key") && (name == key.ClientIP.String() || name == key.Global.String()) {
			k.WrongName(f, name+" is a reserved name", "give the key another name")
		}
		k.named(name, f)
	}
}

// named compiles the key with this name; pointer is the field that refers to it.
func (k *keys) named(name string, pointer any) *key.Spec {
	if spec, ok := k.made.Keys[name]; ok {
		return spec
	}
	if i := slices.Index(k.open, name); i >= 0 {
		circle := strings.Join(append(slices.Clone(k.open[i:]), name), " → ")
		k.Wrong(pointer, "the key depends on itself: "+circle, "take one of them out")
		return nil
	}
	f := k.main.KeyForms[name]
	if f.Text != "" { // phone: header:X-Phone
		f.From, f.Text = f.Text, ""
		k.Alias(&f.From, &f.Text)
	}
	k.open = append(k.open, name)
	spec := k.build(f, name)
	if !k.Valid(f) {
		spec = nil
	}
	k.open = k.open[:len(k.open)-1]
	k.made.Keys[name] = spec
	return spec
}

// use compiles the key of a limit: a name, an origin, or inline. It is nil after a problem; a missing form is one, reported already.
func (k *keys) use(f *keyForm) *key.Spec {
	switch {
	case f == nil:
		return nil
	case f.Text != "":
		return k.refer(&f.Text)
	}
	return k.build(f, "")
}

// refer compiles the key that text refers to: a name or an origin.
func (k *keys) refer(text *string) *key.Spec {
	if *text == "" {
		return nil // already reported
	}
	if f, ok := k.main.KeyForms[*text]; ok {
		k.used[f] = true
		return k.named(*text, text)
	}
	from, ok := k.originOrName(text)
	if !ok {
		return nil
	}
	spec := &key.Spec{Name: from.String(), From: from, Tokens: k.tokens, OnMissing: key.Reject}
	conceal(spec)
	k.warnUnnormalized(text, "", spec)
	k.warnForged(text, from)
	return k.counted(text, spec, 1)
}

// longName returns the name or origin that text is short for, unless a key has that name.
func (k *keys) longName(text string) string {
	if _, named := k.main.KeyForms[text]; named {
		return text
	}
	return key.LongName(text)
}

// originOrName parses an origin where the name of a key is allowed too: an unknown word
// without a colon is treated as a name.
func (k *keys) originOrName(text *string) (key.Origin, bool) {
	from, err := key.ParseOrigin(k.longName(*text))
	if err == nil || strings.Contains(*text, ":") {
		return k.origin(text)
	}
	names := append(form.SortedKeys(k.main.KeyForms), key.ClientIP.String(), key.Global.String())
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(k.open, name) }) // a key is not made of itself
	if k.Lacks(&k.main.KeyForms, *text) {
		k.Wrong(text, "there is no key "+form.Quote(*text), cmp.Or(form.Near(*text, names), "name one under keys, or write an origin such as header:X-Phone"))
	}
	return from, false
}

// origin parses the origin of a key.
func (k *keys) origin(text *string) (key.Origin, bool) {
	from, err := key.ParseOrigin(k.longName(*text))
	if err == nil {
		return from, true
	}
	what, instead, _ := strings.Cut(err.Error(), "; ")
	if _, ok := k.main.KeyForms[*text]; ok {
		instead = "write the name without from: to use that key, or where its text comes from"
	}
	k.Wrong(text, what, instead)
	return from, false
}

// build compiles a form; name is empty for an inline key.
func (k *keys) build(f *keyForm, name string) *key.Spec {
	spec := &key.Spec{Name: name, Sensitive: isTrue(f.Sensitive), SetHeader: http.CanonicalHeaderKey(f.SetHeader), OnMissing: key.Reject}
	switch {
	case k.Given(&f.Join):
		return k.join(f, spec)
	case f.Of != "":
		return k.part(f, spec)
	case (f.Part != "" || f.DropLast != 0) && !k.Given(&f.Of):
		k.Wrong(f, "is a part without a key", "write of: with the name of a key that has normalize: e164")
	}
	if f.From == "" {
		if k.Valid(f) {
			k.Wrong(f, "has no from", "write from: with header:NAME, query:NAME, path:NAME, client_ip or global; or join: with names of keys")
		}
		return nil
	}
	from, ok := k.origin(&f.From)
	k.warnForged(&f.From, from)
	spec.Name, spec.From, spec.Tokens = cmp.Or(name, from.String()), from, k.tokens
	ok = k.normalize(f.Normalize, spec) && ok
	for i := range f.MustEqual {
		if equal, found := k.origin(&f.MustEqual[i]); found {
			spec.Equal = append(spec.Equal, equal)
		}
	}
	if f.Normalize != nil {
		k.phone(f.Normalize, name, spec)
	} else if ok {
		k.warnUnnormalized(f, name, spec)
	}
	spec.OnMissing, spec.Fallback = k.otherwise(&f.OnMissing)
	if f.OnInvalid != nil {
		spec.OnInvalid, spec.InvalidFallback = k.otherwise(&f.OnInvalid)
	}
	if !ok || spec.OnMissing == key.Use && spec.Fallback == nil || spec.OnInvalid == key.Use && spec.InvalidFallback == nil {
		return nil
	}
	if f.Sensitive == nil {
		conceal(spec)
	}
	return k.counted(f, spec, max(1, k.parts[spec.Fallback], k.parts[spec.InvalidFallback]))
}

// normalize compiles the normalization steps and the options for phone numbers.
func (k *keys) normalize(f *normalForm, spec *key.Spec) (ok bool) {
	if f == nil {
		return true
	}
	if len(f.As) == 0 && k.Valid(f) {
		k.Wrong(f, "there is no step", "write e164, trim, lower or digits, or leave normalize out")
	}
	spec.Normalize = slices.DeleteFunc(slices.Clone(f.As), func(s key.Step) bool { return s == "" }) // already reported
	if !slices.Contains(spec.Normalize, key.E164) {
		if f.DefaultRegion != "" || f.Extensions != "" || k.Given(&f.AllowTypes) {
			k.Wrong(f, "default_region, allow_types and extensions are for phone numbers", "write as: e164")
		}
		return true
	}
	types := slices.DeleteFunc(slices.Clone(f.AllowTypes), func(t key.LineType) bool { return t == "" }) // already reported
	phone, err := key.NewPhone(f.DefaultRegion, types, f.Extensions)
	if err != nil {
		k.fault(&f.DefaultRegion, err)
	}
	spec.Phone = phone
	return err == nil
}

// otherwise compiles on_missing or on_invalid; the default is to refuse.
func (k *keys) otherwise(f **missingForm) (key.Missing, *key.Spec) {
	if *f == nil {
		*f = &missingForm{Policy: key.Reject}
	}
	m := *f
	if m.Use != "" {
		return key.Use, k.refer(&m.Use)
	}
	return cmp.Or(m.Policy, key.Reject), nil
}

// part compiles a key that is a part of a phone number.
func (k *keys) part(f *keyForm, spec *key.Spec) *key.Spec {
	if f.From != "" || f.Normalize != nil || f.OnMissing != nil || f.OnInvalid != nil || len(f.MustEqual) > 0 {
		k.Wrong(f, "a part has no from, normalize, must_equal, on_missing or on_invalid of its own", "write them for the key it is a part of")
	}
	if f.Part == "" {
		if k.Valid(&f.Part) {
			k.Wrong(f, "has no part", "write part: country, dial_code or prefix")
		}
		return nil
	}
	part, err := key.NewPart(f.Part, f.DropLast)
	if err != nil {
		k.fault(&f.Part, err)
		return nil
	}
	of := k.refer(&f.Of)
	if of == nil {
		return nil
	}
	spec.Name, spec.Of, spec.Part = cmp.Or(spec.Name, of.Name+"."+string(f.Part)), of, part
	return k.counted(f, spec, max(1, k.parts[of]))
}

// join compiles a joined key.
func (k *keys) join(f *keyForm, spec *key.Spec) *key.Spec {
	if f.From != "" || f.Of != "" || f.Normalize != nil || f.OnMissing != nil || f.OnInvalid != nil ||
		f.SetHeader != "" || isTrue(f.Sensitive) || len(f.MustEqual) > 0 {
		k.Wrong(f, "a joined key has no from, of, normalize, must_equal, on_missing, on_invalid, set_header or sensitive of its own", "write them for its parts")
	}
	if len(f.Join) < 2 && k.Valid(&f.Join) {
		k.Wrong(&f.Join, "joins fewer than two keys", "name two or more, for example [ip, phone]")
		return nil
	}
	spec.Name = cmp.Or(spec.Name, strings.Join(f.Join, "+"))
	parts := 0
	for i := range f.Join {
		part := k.refer(&f.Join[i])
		if slices.Index(f.Join, f.Join[i]) < i && part != nil {
			k.Wrong(&f.Join[i], "joins "+form.Quote(f.Join[i])+" twice", "name it once")
		}
		spec.Join = append(spec.Join, part)
		parts += k.parts[part]
	}
	if parts > maxParts {
		k.Wrong(&f.Join, "is made of "+strconv.Itoa(parts)+" texts", "join at most "+strconv.Itoa(maxParts))
		return nil
	}
	if slices.Contains(spec.Join, nil) {
		return nil
	}
	return k.counted(f, spec, parts)
}

// counted records a valid spec and its number of texts.
func (k *keys) counted(pointer any, spec *key.Spec, parts int) *key.Spec {
	if err := spec.Check(); err != nil {
		k.fault(pointer, err)
	}
	k.parts[spec] = parts
	k.signed = k.signed || spec.From.Source.IsSigned()
	return spec
}

// tokens makes what verifies tokens; nil when nothing is said of them.
// Files are named relative to the main file. Nothing is opened.
func (l *loader) tokens(f *jwtForm) *key.Tokens {
	if f == nil || f.Secret == "" && len(f.Keys) == 0 && f.JWKS == "" {
		return nil
	}
	c := key.TokenConfig{
		Secret: []byte(f.Secret), Methods: f.Methods, Issuer: f.Issuer, Audience: f.Audience,
		JWKS: f.JWKS, Leeway: f.Leeway,
	}
	for i := range f.Keys {
		c.Files = append(c.Files, l.opens(&f.Keys[i]))
	}
	if f.JWKS != "" && !strings.Contains(f.JWKS, "://") {
		c.JWKS = l.opens(&f.JWKS)
	}
	tokens, err := key.NewTokens(c)
	if err != nil {
		l.fault(f, err)
		return nil
	}
	if _, named := l.Written[&f.JWKS]; !named && tokens.Location() != c.JWKS { // it is shown without its password
		l.Written[&f.JWKS] = tokens.Location()
	}
	l.made.Tokens = append(l.made.Tokens, tokens)
	return tokens
}

// newKeys parses new_keys; the zero Rate means no limit.
func (l *loader) newKeys(text *string) limiter.Rate {
	if *text == "" || *text == none {
		return limiter.Rate{} // or already reported
	}
	rate, err := limiter.ParseRate(*text)
	if err == nil {
		err = limiter.CheckKeyGuard(rate)
	}
	if err != nil {
		what, instead, _ := strings.Cut(err.Error(), "; ")
		l.Wrong(text, what, instead+", or "+none)
		return limiter.Rate{}
	}
	return rate
}

// newKeysOf compiles new_keys of a route, and its mode.
func (r *routes) newKeysOf(made *Route) (limiter.Rate, Mode) {
	mode, text := cmp.Or(made.Mode, r.main.Defaults.Mode), &made.form.Guard
	if !r.Given(text) {
		return r.made.Defaults.NewKeys, mode
	}
	clientChosen := func(read Read) bool { return read.Purpose.Counts() && read.Key.ClientChosen() }
	rate := r.newKeys(text)
	if rate.Count > 0 && !slices.ContainsFunc(made.Reads(), clientChosen) {
		r.Warn(text, "no limit of this route has a key that clients choose", "leave it out")
	}
	return rate, mode
}
