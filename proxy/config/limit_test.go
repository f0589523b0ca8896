package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/key"
)

// specs fills every pointer to a key below v with a key of its own and returns them by the path of their field.
// It fills other pointers with what they point to, except of package key.
func specs(v reflect.Value, path string, all map[string]*key.Spec) {
	switch t := v.Type(); {
	case t == reflect.TypeFor[*key.Spec]():
		all[path] = &key.Spec{Name: path}
		v.Set(reflect.ValueOf(all[path]))
	case t == reflect.TypeFor[key.Origin]():
		all[path] = nil // not a key that Reads can have
	case t == reflect.TypeFor[[]*key.Spec]():
		all[path] = &key.Spec{Name: path}
		v.Set(reflect.ValueOf([]*key.Spec{all[path]}))
	case t.Kind() == reflect.Pointer && !strings.HasSuffix(t.Elem().PkgPath(), "/proxy/key"):
		v.Set(reflect.New(t.Elem()))
		specs(v.Elem(), path, all)
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				specs(v.Field(i), strings.TrimPrefix(path+"."+f.Name, "."), all)
			}
		}
	}
}

// A key that a limit holds is one that it reads, or is named here with the reason.
func TestReads_HasEveryKeyOfALimit(t *testing.T) {
	var l Limit
	held := map[string]*key.Spec{}
	specs(reflect.ValueOf(&l).Elem(), "", held)
	for _, ofOthers := range []string{"Return.Key", "Reset.Key"} { // another route reads it, by a limit or list of its own
		if held[ofOthers] == nil {
			t.Errorf("%s is no key; take it out here", ofOthers)
		}
		delete(held, ofOthers)
	}
	var read []string
	purposes := map[Purpose]bool{}
	l.Mode = Shadow
	for _, r := range l.Reads() {
		read = append(read, r.Key.Name)
		if purposes[r.Purpose] && r.Purpose != ForCost || r.Mode != Shadow || held[r.Key.Name] != r.Key {
			t.Errorf("Reads has %+v; want a purpose of its own, and the mode of the limit", r)
		}
		purposes[r.Purpose] = true
	}
	if want := slices.Sorted(maps.Keys(held)); !slices.Equal(slices.Sorted(slices.Values(read)), want) || len(want) < 7 {
		t.Errorf("Reads has %q; want all of %q", read, want)
	}
	if !purposes[ForKey] || !purposes[ForPlan] || purposes[ForList] || purposes[ForBalance] {
		t.Errorf("the purposes are %v", purposes)
	}
}

// A route reads what its limits read, whatever their mode, its lists and its upstream; and of a limit that lacks
// a key nothing is in its place.
func TestReads_OfARoute(t *testing.T) {
	a, b, c, d := &key.Spec{Name: "a"}, &key.Spec{Name: "b"}, &key.Spec{Name: "c"}, &key.Spec{Name: "d"}
	r := Route{
		Limits: []*Limit{{Key: a, Mode: Off}, {Key: a, Distinct: b, Mode: Enforce}}, Lists: []*List{{Key: c}}, Upstream: &Upstream{HashBy: d},
	}
	want := []Read{{a, ForKey, Off}, {a, ForKey, Enforce}, {b, ForDistinct, Enforce}, {c, ForList, Enforce}, {d, ForBalance, Enforce}}
	if got := r.Reads(); !slices.Equal(got, want) {
		t.Errorf("Reads = %v; want %v", got, want)
	}
	r.Upstream = nil
	if got := r.Reads(); !slices.Equal(got, want[:4]) {
		t.Errorf("without an upstream Reads = %v", got)
	}
}
