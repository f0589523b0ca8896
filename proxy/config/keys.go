package config

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/key"
)

// maxParts is the maximum number of texts in a key, including those of joined keys.
const maxParts = 16

// keys compiles keys, each named one once.
type keys struct {
	*loader
	forms map[string]*keyForm
	done  map[string]*key.Spec // nil for one with a problem
	parts map[*key.Spec]int    // maximum number of texts of each
	// tokens verifies bearer tokens for jwt:; nil without a jwt section.
	tokens *key.Tokens
	open   []string    // names being compiled
	warned []*key.Spec // possible phone numbers without normalization
}

func newKeys(r *loader, forms map[string]*keyForm, tokens *key.Tokens) *keys {
	return &keys{loader: r, tokens: tokens, forms: forms, done: map[string]*key.Spec{}, parts: map[*key.Spec]int{}}
}

// all compiles the named keys.
func (k *keys) all() map[string]*key.Spec {
	for _, name := range slices.Sorted(maps.Keys(k.forms)) {
		form := k.forms[name]
		switch {
		case !tokenSafe.MatchString(name):
			k.wrongName(form, quote(name)+" is not a valid name for a key", "begin with a letter, followed by letters, digits, _ . or -")
		case name == string(key.ClientIP) || name == string(key.Global):
			k.wrongName(form, name+" is a reserved name", "give the key another name")
		}
		k.named(name, form)
	}
	return k.done
}

// named compiles the key with this name; pointer is the field that refers to it.
func (k *keys) named(name string, pointer any) *key.Spec {
	if spec, ok := k.done[name]; ok {
		return spec
	}
	if i := slices.Index(k.open, name); i >= 0 {
		circle := strings.Join(append(slices.Clone(k.open[i:]), name), " → ")
		k.wrong(pointer, "the key depends on itself: "+circle, "take one of them out")
		return nil
	}
	form := k.forms[name]
	if form.Text != "" { // phone: header:X-Phone
		form.From, form.Text = form.Text, ""
		if text, ok := k.written[&form.Text]; ok {
			k.written[&form.From] = text
		}
		k.places[&form.From] = k.places[&form.Text]
	}
	k.open = append(k.open, name)
	spec := k.build(form, name)
	k.open = k.open[:len(k.open)-1]
	k.done[name] = spec
	return spec
}

// use compiles the key of a limit: a name, an origin, or inline.
func (k *keys) use(form *keyForm) *key.Spec {
	if form.Text != "" {
		return k.refer(&form.Text)
	}
	return k.build(form, "")
}

// refer compiles the key that text refers to: a name or an origin.
func (k *keys) refer(text *string) *key.Spec {
	if *text == "" {
		return nil // already reported
	}
	if _, ok := k.forms[*text]; ok {
		return k.named(*text, text)
	}
	from, ok := k.originOrName(text)
	if !ok {
		return nil
	}
	spec := &key.Spec{Name: from.String(), From: from, Tokens: k.tokens, OnMissing: key.Reject}
	k.warnUnnormalized(text, "", spec)
	return k.counted(text, spec, 1)
}

// originOrName parses an origin where the name of a key is allowed too: an unknown word
// without a colon is treated as a name.
func (k *keys) originOrName(text *string) (key.Origin, bool) {
	from, err := key.ParseOrigin(*text)
	if err == nil || strings.Contains(*text, ":") {
		return k.origin(text)
	}
	names := append(slices.Sorted(maps.Keys(k.forms)), string(key.ClientIP), string(key.Global))
	k.wrong(text, "there is no key "+quote(*text), cmp.Or(near(*text, names), "name one under keys, or write an origin such as header:X-Phone"))
	return from, false
}

// origin parses the origin of a key.
func (k *keys) origin(text *string) (key.Origin, bool) {
	from, err := key.ParseOrigin(*text)
	if err == nil {
		return from, true
	}
	what, instead, _ := strings.Cut(err.Error(), "; ")
	if _, ok := k.forms[*text]; ok {
		instead = "write the name without from: to use that key, or where its text comes from"
	}
	k.wrong(text, what, instead)
	return from, false
}

// build compiles a form; name is empty for an inline key.
func (k *keys) build(form *keyForm, name string) *key.Spec {
	switch {
	case k.given(&form.Join):
		return k.join(form, name)
	case form.Of != "":
		return k.part(form, name)
	case form.Part != "" || form.DropLast != 0:
		k.wrong(form, "is a part without a key", "write of: with the name of a key that has normalize: e164")
	}
	if form.From == "" {
		if k.ok(form) {
			k.wrong(form, "has no from", "write from: with header:NAME, query:NAME, path:NAME, client_ip or global; or join: with names of keys")
		}
		return nil
	}
	from, ok := k.origin(&form.From)
	spec := &key.Spec{
		Name: name, From: from, Tokens: k.tokens, Sensitive: form.Sensitive,
		SetHeader: http.CanonicalHeaderKey(form.SetHeader),
	}
	if name == "" {
		spec.Name = from.String()
	}
	ok = k.normalize(form.Normalize, spec) && ok
	for i := range form.MustEqual {
		if equal, found := k.origin(&form.MustEqual[i]); found {
			spec.Equal = append(spec.Equal, equal)
		}
	}
	if form.Normalize != nil {
		k.phone(form.Normalize, name, spec)
	} else if ok {
		k.warnUnnormalized(form, name, spec)
	}
	spec.OnMissing, spec.Fallback = k.otherwise(&form.OnMissing)
	if form.OnInvalid != nil {
		spec.OnInvalid, spec.InvalidFallback = k.otherwise(&form.OnInvalid)
	}
	if !ok || spec.OnMissing == key.Use && spec.Fallback == nil || spec.OnInvalid == key.Use && spec.InvalidFallback == nil {
		return nil
	}
	return k.counted(form, spec, max(1, k.parts[spec.Fallback], k.parts[spec.InvalidFallback]))
}

// normalize compiles the normalization steps and the options for phone numbers.
func (k *keys) normalize(form *normalForm, spec *key.Spec) (ok bool) {
	if form == nil {
		return true
	}
	for _, step := range form.As {
		if step != "" {
			spec.Normalize = append(spec.Normalize, key.Step(step))
		}
	}
	if !slices.Contains(spec.Normalize, key.E164) {
		if form.DefaultRegion != "" || form.Extensions != "" || k.given(&form.AllowTypes) {
			k.wrong(form, "default_region, allow_types and extensions are for phone numbers", "write as: e164")
		}
		return true
	}
	types := make([]key.LineType, 0, len(form.AllowTypes))
	for _, t := range form.AllowTypes {
		if t != "" {
			types = append(types, key.LineType(t))
		}
	}
	phone, err := key.NewPhone(form.DefaultRegion, types, key.Extensions(form.Extensions))
	if err != nil {
		k.fault(&form.DefaultRegion, err)
	}
	spec.Phone = phone
	return err == nil
}

// otherwise compiles on_missing or on_invalid; the default is to refuse.
func (k *keys) otherwise(form **missingForm) (key.Missing, *key.Spec) {
	if *form == nil {
		*form = &missingForm{Policy: string(key.Reject)}
	}
	if m := *form; m.Use != "" {
		return key.Use, k.refer(&m.Use)
	} else if m.Policy != "" {
		return key.Missing(m.Policy), nil
	}
	return key.Reject, nil
}

// part compiles a key that is a part of a phone number.
func (k *keys) part(form *keyForm, name string) *key.Spec {
	if form.From != "" || form.Normalize != nil || form.OnMissing != nil || form.OnInvalid != nil || len(form.MustEqual) > 0 {
		k.wrong(form, "a part has no from, normalize, must_equal, on_missing or on_invalid of its own", "write them for the key it is a part of")
	}
	if form.Part == "" {
		if k.ok(&form.Part) {
			k.wrong(form, "has no part", "write part: country, dial_code or prefix")
		}
		return nil
	}
	part, err := key.ParsePart(form.Part, form.DropLast)
	if err != nil {
		k.fault(&form.Part, err)
		return nil
	}
	of := k.refer(&form.Of)
	if of == nil {
		return nil
	}
	spec := &key.Spec{
		Name: name, Of: of, Part: part, Sensitive: form.Sensitive, SetHeader: http.CanonicalHeaderKey(form.SetHeader),
		OnMissing: key.Reject,
	}
	if name == "" {
		spec.Name = of.Name + "." + form.Part
	}
	return k.counted(form, spec, max(1, k.parts[of]))
}

// fault reports an error of package key, which contains what to write instead.
func (k *keys) fault(pointer any, err error) {
	what, instead, _ := strings.Cut(err.Error(), "; ")
	k.wrong(pointer, what, instead)
}

// join compiles a joined key.
func (k *keys) join(form *keyForm, name string) *key.Spec {
	if form.From != "" || form.Of != "" || form.Normalize != nil || form.OnMissing != nil || form.OnInvalid != nil ||
		form.SetHeader != "" || form.Sensitive || len(form.MustEqual) > 0 {
		k.wrong(form, "a joined key has no from, of, normalize, must_equal, on_missing, on_invalid, set_header or sensitive of its own", "write them for its parts")
	}
	if len(form.Join) < 2 && k.ok(&form.Join) {
		k.wrong(&form.Join, "joins fewer than two keys", "name two or more, for example [ip, phone]")
		return nil
	}
	spec := &key.Spec{Name: name, OnMissing: key.Reject}
	if name == "" {
		spec.Name = strings.Join(form.Join, "+")
	}
	parts := 0
	for i := range form.Join {
		part := k.refer(&form.Join[i])
		if slices.Index(form.Join, form.Join[i]) < i && part != nil {
			k.wrong(&form.Join[i], "joins "+quote(form.Join[i])+" twice", "name it once")
		}
		spec.Join = append(spec.Join, part)
		parts += k.parts[part]
	}
	if parts > maxParts {
		k.wrong(&form.Join, "is made of "+strconv.Itoa(parts)+" texts", "join at most "+strconv.Itoa(maxParts))
		return nil
	}
	if slices.Contains(spec.Join, nil) {
		return nil
	}
	return k.counted(form, spec, parts)
}

// counted records a valid spec and its number of texts.
func (k *keys) counted(pointer any, spec *key.Spec, parts int) *key.Spec {
	if err := spec.Check(); err != nil {
		k.fault(pointer, err)
	}
	k.parts[spec] = parts
	return spec
}
