package config

import (
	"crypto/sha256"
	"slices"

	"github.com/weir-proxy/weir/proxy/key"
)

// A Value is a value of a list or the key of an override, with its position or the file that contains it.
type Value struct {
	List     string // the name of its list; empty if it is of an override
	Spec     *key.Spec
	Position // empty if File is given
	Text     string
	Written  string // empty unless it names variables
	File     string // the file of values
	Named    bool   // its lines are VALUE=NAME
	Prefix   bool   // prefixes of values
	limit    *limitForm
}

// Values returns the values of all lists and the keys of all overrides.
func (c *Config) Values() []Value { return c.values }

// IsConcealed reports whether v is hashed where others may read it. A prefix is not: it could not be looked up, and
// it stands for a range of keys.
func (v *Value) IsConcealed() bool { return v.Spec.IsConcealed() && !v.Prefix }

// secrets returns the secrets with which values of lists may be hashed.
func (p Privacy) secrets() [][]byte {
	var all [][]byte
	for _, secret := range []string{p.HashSecret, p.Previous} {
		if secret != "" {
			all = append(all, []byte(secret))
		}
	}
	return all
}

// hashedValues returns f for display: values of sensitive keys in lists and overrides are hashed, so that the
// result can be loaded with the same effect.
func (c *Config) hashedValues(f file) file {
	salt := sha256.Sum256([]byte("salt of " + c.Hash))
	pepper := key.Salt(salt[:])
	specs, limits := map[string]*key.Spec{}, map[*limitForm]*key.Spec{}
	for _, v := range c.values {
		if v.limit != nil {
			limits[v.limit] = v.Spec
		} else if v.IsConcealed() {
			specs[v.List] = v.Spec
		}
	}
	hash := func(spec *key.Spec, text string) string {
		if spec == nil || !spec.IsConcealed() {
			return text
		}
		if hash, err := pepper.HashValue(spec, text); err == nil {
			return hash
		}
		return text
	}
	lists := map[string]*listForm{}
	for name, l := range f.Lists {
		shown := *l
		shown.Values = slices.Clone(l.Values)
		for i, text := range l.Values {
			shown.Values[i] = hash(specs[name], text)
		}
		lists[name] = &shown
	}
	shown := func(l *limitForm) *limitForm {
		one := *l
		one.Overrides = concealedOverrides(l, limits[l], func(text string) string { return hash(limits[l], text) })
		return &one
	}
	common := map[string]*limitForm{}
	for name, l := range f.Limits {
		common[name] = shown(l)
		common[name].Name = "" // it stands before the limit
	}
	f.Lists, f.Limits, f.Routes = lists, common, slices.Clone(f.Routes)
	for i, r := range f.Routes {
		route := *r
		route.Limits = slices.Clone(r.Limits)
		for j, l := range route.Limits {
			route.Limits[j] = shown(l)
		}
		f.Routes[i] = &route
	}
	return f
}
