package route

import (
	"cmp"
	"slices"
	"strings"
)

// A Descriptor is what Envoy's rate limit filter asks about: entries in the order in which they
// were made.
type Descriptor []DescriptorField

// A DescriptorField is one entry of a Descriptor.
type DescriptorField struct{ Key, Value string }

// Value returns the value of an entry, "" if there is none.
func (d Descriptor) Value(key string) string {
	value, _ := d.Find(key)
	return value
}

// Find returns the value of an entry, and whether there is one.
func (d Descriptor) Find(key string) (value string, found bool) {
	for i := range d {
		if d[i].Key == key {
			return d[i].Value, true
		}
	}
	return "", false
}

// A DescriptorEntry is a pattern of descriptors and its value. The pattern has all entries of the
// descriptors that it matches: the exact value, a prefix that ends with *, or * for any.
type DescriptorEntry[R any] struct {
	Domain  string
	Entries map[string]string
	Value   R
}

// Descriptors finds the most specific pattern of a descriptor: that with most exact values, then that with the
// longest prefixes, then the earliest. It is immutable and safe for concurrent use.
type Descriptors[R any] struct {
	byDomain map[string][]DescriptorEntry[R] // the most specific first
}

// NewDescriptors builds Descriptors.
func NewDescriptors[R any](entries []DescriptorEntry[R]) *Descriptors[R] {
	d := &Descriptors[R]{byDomain: map[string][]DescriptorEntry[R]{}}
	for _, e := range entries {
		d.byDomain[e.Domain] = append(d.byDomain[e.Domain], e)
	}
	for _, all := range d.byDomain {
		slices.SortStableFunc(all, func(a, b DescriptorEntry[R]) int { return b.specificity().compare(a.specificity()) })
	}
	return d
}

// A specificity says how specific a pattern is.
type specificity struct{ exact, prefixes int }

func (s specificity) compare(o specificity) int {
	return cmp.Or(cmp.Compare(s.exact, o.exact), cmp.Compare(s.prefixes, o.prefixes))
}

func (e DescriptorEntry[R]) specificity() (s specificity) {
	for _, value := range e.Entries {
		if prefix, open := strings.CutSuffix(value, "*"); open {
			s.prefixes += len(prefix)
		} else {
			s.exact++
		}
	}
	return s
}

// Find returns the value of the most specific pattern of a domain that matches a descriptor. A
// descriptor that has an entry twice matches nothing.
func (d *Descriptors[R]) Find(domain string, of Descriptor) (value R, found bool) {
	for i := range d.byDomain[domain] {
		if e := &d.byDomain[domain][i]; e.matches(of) {
			return e.Value, true
		}
	}
	return value, false
}

func (e *DescriptorEntry[R]) matches(d Descriptor) bool {
	if len(d) != len(e.Entries) {
		return false
	}
	for i, f := range d {
		want, has := e.Entries[f.Key]
		if !has || slices.ContainsFunc(d[:i], func(o DescriptorField) bool { return o.Key == f.Key }) {
			return false
		}
		prefix, open := strings.CutSuffix(want, "*")
		if !open && f.Value != want || open && !strings.HasPrefix(f.Value, prefix) {
			return false
		}
	}
	return true
}
