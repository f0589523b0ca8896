package config

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/key"
)

// maxParts is how many texts one key may be made of, those of the keys it is
// joined of included.
const maxParts = 16

// keys makes specs of what is written, each named one once.
type keys struct {
	*reading
	forms map[string]*keyForm
	done  map[string]*key.Spec // nil for one with a problem
	parts map[*key.Spec]int    // how many texts each is made of, at most
	open  []string             // the names that are being made
}

func newKeys(r *reading, forms map[string]*keyForm) *keys {
	return &keys{reading: r, forms: forms, done: map[string]*key.Spec{}, parts: map[*key.Spec]int{}}
}

// all makes the named keys.
func (k *keys) all() map[string]*key.Spec {
	for _, name := range slices.Sorted(maps.Keys(k.forms)) {
		form := k.forms[name]
		switch {
		case !tokenSafe.MatchString(name):
			k.misnamed(form, quote(name)+" is no name for a key", "begin with a letter and go on with letters, digits, _ . or -")
		case name == string(key.ClientIP) || name == string(key.Global):
			k.misnamed(form, name+" has a meaning of its own", "give the key another name")
		}
		k.named(name, form)
	}
	return k.done
}

// named makes the key of this name; pointer is where it was asked for.
func (k *keys) named(name string, pointer any) *key.Spec {
	if spec, ok := k.done[name]; ok {
		return spec
	}
	if i := slices.Index(k.open, name); i >= 0 {
		circle := strings.Join(append(slices.Clone(k.open[i:]), name), " → ")
		k.wrong(pointer, "the key is made of itself: "+circle, "take one of them out")
		return nil
	}
	form := k.forms[name]
	if form.Text != "" { // phone: header:X-Phone
		form.From, form.Text = form.Text, ""
		k.places[&form.From] = k.places[&form.Text]
	}
	k.open = append(k.open, name)
	spec := k.build(form, name)
	k.open = k.open[:len(k.open)-1]
	k.done[name] = spec
	return spec
}

// use makes the key of a limit: a name, an origin, or written in place.
func (k *keys) use(form *keyForm) *key.Spec {
	if form.Text != "" {
		return k.refer(&form.Text)
	}
	return k.build(form, "")
}

// refer makes the key that text refers to: a name, or else an origin.
func (k *keys) refer(text *string) *key.Spec {
	if *text == "" {
		return nil // a problem already
	}
	if _, ok := k.forms[*text]; ok {
		return k.named(*text, text)
	}
	from, ok := k.origin(text, true)
	if !ok {
		return nil
	}
	return k.counted(&key.Spec{Name: from.String(), From: from, OnMissing: key.Reject}, 1)
}

// origin reads an origin. Where a name may stand too, and no origin has one,
// an unknown word is taken for a name.
func (k *keys) origin(text *string, nameable bool) (key.Origin, bool) {
	from, err := key.ParseOrigin(*text)
	if err == nil {
		return from, true
	}
	if instead, ok := notBuiltValue("keyForm.from", *text); ok {
		k.wrong(text, quote(*text)+" is not built yet", instead)
		return from, false
	}
	if nameable && !strings.Contains(*text, ":") {
		names := append(slices.Sorted(maps.Keys(k.forms)), string(key.ClientIP), string(key.Global))
		k.wrong(text, "there is no key "+quote(*text), cmp.Or(near(*text, names), "name one under keys, or write an origin such as header:X-Phone"))
		return from, false
	}
	what, instead, _ := strings.Cut(err.Error(), "; ")
	if _, ok := k.forms[*text]; ok {
		instead = "write the name without from: to use that key, or where its text comes from"
	}
	k.wrong(text, what, instead)
	return from, false
}

// build makes the key of a form; name is empty for one written in place.
func (k *keys) build(form *keyForm, name string) *key.Spec {
	if k.given(&form.Join) {
		return k.join(form, name)
	}
	if form.From == "" {
		if k.sound(form) {
			k.wrong(form, "has no from", "write from: with header:NAME, query:NAME, path:NAME, client_ip or global; or join: with names of keys")
		}
		return nil
	}
	from, ok := k.origin(&form.From, false)
	spec := &key.Spec{Name: name, From: from, OnMissing: key.Reject}
	if name == "" {
		spec.Name = from.String()
	}
	if form.Normalize != nil {
		for _, step := range form.Normalize.As {
			if step != "" {
				spec.Normalize = append(spec.Normalize, key.Step(step))
			}
		}
	}
	k.missing(form, spec)
	if !ok || spec.OnMissing == key.Use && spec.Instead == nil {
		return nil
	}
	return k.counted(spec, max(1, k.parts[spec.Instead]))
}

// missing reads what happens without the key.
func (k *keys) missing(form *keyForm, spec *key.Spec) {
	if form.OnMissing == nil {
		form.OnMissing = &missingForm{Policy: string(key.Reject)}
	}
	if m := form.OnMissing; m.Use != "" {
		spec.OnMissing, spec.Instead = key.Use, k.refer(&m.Use)
	} else if m.Policy != "" {
		spec.OnMissing = key.Missing(m.Policy)
	}
}

// join makes a key of several.
func (k *keys) join(form *keyForm, name string) *key.Spec {
	if form.From != "" || form.Normalize != nil || form.OnMissing != nil {
		k.wrong(form, "a joined key has no from, normalize or on_missing of its own", "write them for its parts")
	}
	if len(form.Join) < 2 && k.sound(&form.Join) {
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
	return k.counted(spec, parts)
}

func (k *keys) counted(spec *key.Spec, parts int) *key.Spec {
	k.parts[spec] = parts
	return spec
}
