package key

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/gaissmai/bart"
)

// ErrTwice reports a value to which a list gives two names.
var ErrTwice = errors.New("given twice, with two names; keep one of them")

// nameForm matches a name that a list gives to a key.
var nameForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// ParseNames is like ParseList for lines VALUE=NAME: the list maps each value to a name, such as that of
// a plan. A value may contain =, a name may not. One network may lie in another; the smaller one holds.
func ParseNames(spec *Spec, text string) (*List, []Problem) {
	l := &List{spec: spec}
	if l.byAddress() {
		l.named = new(bart.Table[uint32])
	}
	numbers := map[string]uint32{}
	return l, l.add(lines(text), func(line string) error {
		value, name := cutName(line)
		if !nameForm.MatchString(name) {
			return fmt.Errorf("%w: not a value, = and a name; write for example acme=pro", ErrSpec)
		}
		number, known := numbers[name]
		if !known {
			number = uint32(len(l.names))
			name = strings.Clone(name) // and not the whole text
			numbers[name], l.names = number, append(l.names, name)
		}
		return l.insert(strings.TrimSpace(value), number)
	})
}

// cutName splits VALUE=NAME. The value is the whole line if there is no =.
func cutName(line string) (value, name string) {
	i := strings.LastIndexByte(line, '=')
	if i < 0 {
		return line, ""
	}
	return line[:i], strings.TrimSpace(line[i+1:])
}

// insertNetwork adds a network of a list with names.
func (l *List) insertNetwork(network netip.Prefix, name uint32) error {
	if known, twice := l.named.Get(network); twice && known != name {
		return ErrTwice
	}
	l.named.Insert(network, name)
	return nil
}

// Names returns the names of the list, in the order of their first lines.
func (l *List) Names() []string {
	if l == nil {
		return nil
	}
	return slices.Clone(l.names)
}

// Name returns the name that the list has for the key that v extracted last, "" if it has none. For
// several addresses that count as one client, it is that of the smallest network around all of them, or
// that of any of them.
func (l *List) Name(v *Value) string {
	leaf, ok := l.own(v)
	var number uint32
	switch {
	case !ok:
		return ""
	case l.byAddress():
		number, ok = l.networkName(leaf.network)
	default:
		number, ok = l.texts.find(leaf.text)
	}
	if !ok {
		return ""
	}
	return l.names[number]
}

// networkName returns the number of the name of a client's network.
func (l *List) networkName(client netip.Prefix) (number uint32, ok bool) {
	if !client.IsValid() {
		return 0, false
	}
	if _, number, ok = l.named.LookupPrefixLPM(client); ok {
		return number, true
	}
	for _, number := range l.named.Subnets(client) {
		return number, true
	}
	return 0, false
}
