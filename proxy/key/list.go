package key

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"
)

// A List is a set of keys: for the client's address, addresses and networks; for
// any other key, texts. It never changes and is safe for concurrent use.
type List struct {
	spec     *Spec
	texts    map[string]struct{}
	hashes   *hashes // of values that are not told
	networks bart.Lite
}

// A Problem is what is wrong with a line of a list. Its text does not repeat the
// line.
type Problem struct {
	Line int // from 1
	Err  error
}

// ParseList reads a list of keys of spec, one a line, each in any spelling that
// spec takes. Blank lines are left out, and so is what follows a # at the start
// of a line or after a space. It returns every problem there is; the List holds
// the lines that have none. Problems wrap ErrSpec. A joined key has no lists.
// Values may be hashed (see Pepper), under one of secrets or a salt.
func ParseList(spec *Spec, text string, secrets ...[]byte) (*List, []Problem) {
	var entries []string
	for line := range strings.Lines(strings.TrimPrefix(text, "\uFEFF")) {
		entries = append(entries, entry(line))
	}
	return ListOf(spec, entries, secrets...)
}

// ListOf is ParseList for values that stand each by itself, where no # begins a
// comment. Empty ones are left out. The line of a Problem is the number of its value.
func ListOf(spec *Spec, values []string, secrets ...[]byte) (*List, []Problem) {
	l := &List{spec: spec, texts: map[string]struct{}{}, hashes: newHashes(secrets)}
	if spec.Join != nil || spec.From.Source == Global {
		return l, []Problem{{Line: 1, Err: fmt.Errorf("%w: %s is made of several keys, or of none; name one that has a text of its own", ErrSpec, spec.Name)}}
	}
	var problems []Problem
	for i, value := range values {
		if value = strings.TrimSpace(value); value == "" {
			continue
		}
		if err := l.insert(value); err != nil {
			problems = append(problems, Problem{i + 1, err})
		}
	}
	return l, problems
}

// entry is a line without its comment.
func entry(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			line = line[:i]
			break
		}
	}
	return strings.TrimSpace(line)
}

func (l *List) insert(entry string) error {
	if l.spec.Conceals() && (l.hashes.reads(entry) || l.hashes.head != "") {
		return l.hashes.insert(entry)
	}
	if l.byAddress() {
		network, err := network(entry)
		if err == nil {
			l.networks.Insert(network)
		}
		return err
	}
	text, err := l.spec.value(entry)
	if err == nil {
		l.texts[text] = struct{}{}
	}
	return err
}

// value is the text that a request with entry is counted under.
func (s *Spec) value(entry string) (string, error) {
	if s.Of != nil {
		return s.Part.text(entry)
	}
	f, err := s.normalize(found{text: entry})
	if err != nil {
		return "", fmt.Errorf("%w: %w; write it as a request would carry it", ErrSpec, err)
	}
	return f.text, nil
}

// network reads an address or a network. One in which bits are set behind its
// length is refused: which of the two was meant is not known.
func network(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%w: no address; write one such as 192.0.2.1 or 2001:db8::/48", ErrSpec)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%w: no network; write one such as 192.0.2.0/24 or 2001:db8::/48", ErrSpec)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%w: no network, for bits are set behind its length; write an address, or a network such as 192.0.2.0/24", ErrSpec)
	}
	return p, nil
}

// Has reports whether the key that v extracted last stands in the list. It does
// not if it is missing or replaced by another. A client whose addresses count
// as one network is in the list if any of them is.
func (l *List) Has(v *Value) bool {
	leaf, ok := l.own(v)
	switch {
	case !ok:
		return false
	case l.byAddress():
		return leaf.network.IsValid() && l.networks.OverlapsPrefix(leaf.network)
	}
	if _, ok = l.texts[leaf.text]; ok {
		return true
	}
	_, ok = l.hashes.find(leaf.text)
	return ok
}

// Hash is how ConcealOne writes the key that v extracted last, if it stands in the
// list hashed.
func (l *List) Hash(v *Value) (text string, ok bool) {
	leaf, ok := l.own(v)
	if !ok || l.byAddress() {
		return "", false
	}
	return l.hashes.find(leaf.text)
}

// HasExactly is Has for a list that lets through: it goes by the address that the
// client has, and not by those of its network that others may have.
func (l *List) HasExactly(v *Value, client netip.Addr) bool {
	if _, ok := l.own(v); ok && l.byAddress() {
		return client.IsValid() && l.networks.Contains(client)
	}
	return l.Has(v)
}

// own is what v extracted last, if that can stand in l.
func (l *List) own(v *Value) (leaf, bool) {
	if l == nil || v.Skip || len(v.leaves) != 1 {
		return leaf{}, false
	}
	last := v.leaves[0]
	return last, last.spec == l.spec && last.known && last.kind == text
}

// byAddress reports whether l is of addresses and networks.
func (l *List) byAddress() bool { return l.spec.Of == nil && l.spec.From.Source == ClientIP }

// Len is how many different entries the list has.
func (l *List) Len() int { return len(l.texts) + len(l.hashes.sums) + l.networks.Size() }
