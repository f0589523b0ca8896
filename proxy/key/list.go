package key

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math/bits"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/weir-proxy/weir/limiter"
)

// A List is a set of keys: addresses and networks for client_ip, texts for all other keys. Each may have
// a name, see ParseNames. A List is immutable and safe for concurrent use.
type List struct {
	spec        *Spec
	texts       textTable // with the numbers of their names; 0 without names
	networks    bart.Table[uint32]
	hasPrefixes bool     // of ParsePrefixes: texts are prefixes
	names       []string // of ParseNames, by number
}

// A Problem is an error in a line of a list. It does not contain the line.
type Problem struct {
	Line int // from 1
	Err  error
}

// ParseList parses a list of values of spec, in any spelling that spec accepts: Lines of a text, or separate values.
// Blank ones are ignored. It returns all problems, with the number of the line or value; the List contains the valid
// ones. Problems wrap ErrSpec. Joined and constant keys have no lists.
func ParseList(spec *Spec, entries iter.Seq[string]) (*List, []Problem) {
	l := &List{spec: spec}
	return l, l.add(entries, func(value string) error { return l.insert(value, 0) })
}

// add inserts the entries, after which l has no more.
func (l *List) add(entries iter.Seq[string], insert func(entry string) error) []Problem {
	defer l.texts.trim()
	return eachEntry(entries, func(_ int, entry string) error { return insert(entry) })
}

// eachEntry inserts the entries that are not blank, without the white space around them, by their lines.
func eachEntry(entries iter.Seq[string], insert func(line int, entry string) error) (problems []Problem) {
	line := 0
	for entry := range entries {
		line++
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		if err := insert(line, entry); err != nil {
			problems = append(problems, Problem{line, err})
		}
	}
	return problems
}

// Lines returns the lines of a list without their comments: text after a # at the beginning of a line or after a space.
func Lines(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(strings.TrimPrefix(text, "\uFEFF")) {
			if !yield(entry(line)) {
				return
			}
		}
	}
}

// entry returns a line without its comment.
func entry(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			line = line[:i]
			break
		}
	}
	return strings.TrimSpace(line)
}

// insert adds a value with the number of its name. It returns ErrTwice if the list has it with another.
func (l *List) insert(value string, name uint32) error {
	// it would list nobody, in silence
	if strings.HasPrefix(value, "hashed:k:") || strings.HasPrefix(value, "hashed:s:") {
		return fmt.Errorf("%w: a hash in place of a value, as Weir 0.1.0 pushed it; push the file itself again",
			ErrSpec)
	}
	if l.byAddress() {
		network, err := network(value)
		if err != nil {
			return err
		}
		if known, twice := l.networks.Get(network); twice && known != name {
			return ErrTwice
		}
		l.networks.Insert(network, name)
		return nil
	}
	text, err := l.spec.value(value)
	if err == nil && l.texts.insert(text, name) != name {
		return ErrTwice
	}
	return err
}

// value returns the text under which a request with entry is counted.
func (s *Spec) value(entry string) (string, error) {
	if s.Of != nil {
		return s.Part.text(entry)
	}
	f, sent := result{text: entry}, result{text: entry}
	err := s.normalize(&f)
	if err == nil && s.checkAmbiguous(&s.From, &sent) != nil { // no request is accepted with it, unless in another spelling
		err = s.checkAmbiguous(&s.From, &f)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w; write it as a request would carry it", ErrSpec, err)
	}
	return f.text, s.From.Source.possible(f.text)
}

// network parses an address or a network. A network with host bits set is an error, because
// its meaning is unclear.
func network(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%w: not an address; write one such as 192.0.2.1 or 2001:db8::/48",
				ErrSpec)
		}
		a = limiter.ClientAddr(a)
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || p.Addr().Is4In6():
		err = fmt.Errorf("%w: not a network; write one such as 192.0.2.0/24 or 2001:db8::/48", ErrSpec)
	case limiter.IsTranslated(p):
		err = fmt.Errorf("%w: clients of NAT64 count by their IPv4 address; write the network of IPv4", ErrSpec)
	case p != p.Masked():
		err = fmt.Errorf("%w: host bits are set; write an address, or a network such as 192.0.2.0/24", ErrSpec)
	}
	return p, err
}

// Has reports whether the list contains the key that v extracted last. It does not if the
// key is missing or was replaced by another. If several addresses count as one client, the
// list contains the client if it contains any of them.
func (l *List) Has(v *Value) bool {
	_, found := l.find(v)
	return found
}

// HasExactly is like Has, for a list that lets requests pass: it uses the address of the
// client, not its network, which others may share.
func (l *List) HasExactly(v *Value, client netip.Addr) bool {
	if _, ok := l.own(v); ok && l.byAddress() {
		return client.IsValid() && l.networks.Contains(client)
	}
	return l.Has(v)
}

// own returns the text that v extracted last, if l can contain it.
func (l *List) own(v *Value) (component, bool) {
	if l == nil || v.Skip || len(v.components) != 1 {
		return component{}, false
	}
	last := v.components[0]
	return last, last.spec == l.spec && last.hasText && last.kind == 0
}

// byAddress reports whether l contains addresses and networks.
func (l *List) byAddress() bool { return l.spec.Of == nil && l.spec.From.Source.IsAddress() }

// Len returns the number of distinct entries.
func (l *List) Len() int { return l.texts.size + l.networks.Size() }

// ErrTwice reports a value to which a list gives two names.
var ErrTwice = errors.New("given twice, with two names; keep one of them")

// nameForm matches a name that a list gives to a key.
var nameForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// ParseNames is like ParseList for lines VALUE=NAME: the list maps each value to a name, such as that of
// a plan. A value may contain =, a name may not. One network may lie in another; the smaller one holds.
func ParseNames(spec *Spec, text string) (*List, []Problem) {
	l := &List{spec: spec}
	numbers := map[string]uint32{}
	return l, l.add(Lines(text), func(line string) error {
		last := strings.LastIndexByte(line, '=')
		name := strings.TrimSpace(line[last+1:])
		if last < 0 || !nameForm.MatchString(name) {
			return fmt.Errorf("%w: not a value, = and a name; write for example acme=pro", ErrSpec)
		}
		number, known := numbers[name]
		if !known {
			number = uint32(len(l.names))
			name = strings.Clone(name) // and not the whole text
			numbers[name], l.names = number, append(l.names, name)
		}
		return l.insert(strings.TrimSpace(line[:last]), number)
	})
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
	if number, found := l.find(v); found {
		return l.names[number]
	}
	return ""
}

// find returns the number of the name of the key that v extracted last, if the list contains it.
func (l *List) find(v *Value) (number uint32, found bool) {
	leaf, ok := l.own(v)
	switch {
	case !ok:
	case l.byAddress():
		number, found = l.networkName(leaf.network)
	case l.hasPrefixes:
		number, found = l.texts.longest(leaf.text)
	default:
		number, found = l.texts.find(leaf.text)
	}
	return number, found
}

// networkName returns the number of the name of a client's network; no list has the zero one.
func (l *List) networkName(client netip.Prefix) (number uint32, ok bool) {
	if _, number, ok = l.networks.LookupPrefixLPM(client); ok {
		return number, true
	}
	for _, number := range l.networks.Subnets(client) {
		return number, true
	}
	return 0, false
}

// MaxPrefix is the maximum length of a prefix in a list, in bytes.
const MaxPrefix = 63

// ParsePrefixes is like ParseList for values that are prefixes of keys, such as ranges of phone numbers:
// the list has each key that begins with one of them. Numbers are written in international form, with or
// without the plus. See Spec.HasPrefixes for the keys that have them.
func ParsePrefixes(spec *Spec, entries iter.Seq[string]) (*List, []Problem) {
	l := &List{spec: spec, hasPrefixes: true}
	return l, l.add(entries, func(entry string) error {
		text, err := spec.prefix(entry)
		if err == nil {
			l.texts.insert(text, 0)
		}
		return err
	})
}

// HasPrefixes reports whether keys of spec begin with something that many of them have in common. Networks
// are prefixes already, and a country is a whole.
func (s *Spec) HasPrefixes() bool {
	if s.Of != nil {
		return s.Part.Kind != Country
	}
	return s.Join == nil && !s.From.Source.IsConstant() && !s.From.Source.IsAddress()
}

// prefix returns the text with which the keys begin that entry stands for.
func (s *Spec) prefix(entry string) (text string, err error) {
	if s.Phone != nil || s.Of != nil {
		return dialedPrefix(entry)
	}
	if text, err = s.value(entry); err == nil && len(text) > MaxPrefix {
		return "", fmt.Errorf("%w: longer than %d bytes; write a shorter prefix", ErrSpec, MaxPrefix)
	}
	return text, err
}

// hasTrunkPrefix reports whether a text has the (0) of +44 (0)20, which no number has in E.164, but in Italy.
func hasTrunkPrefix(s string) bool { return strings.Contains(strings.ReplaceAll(s, " ", ""), "(0)") }

// dialedPrefix returns the beginning of phone numbers in E.164. No calling code begins with 0, so that a
// prefix as it is dialed within a country is not taken for another.
func dialedPrefix(entry string) (string, error) {
	dialed, extension, ok := dialedDigits(entry)
	digits := strings.TrimPrefix(dialed, "+")
	if !ok || extension || digits[0] == '0' || hasTrunkPrefix(entry) {
		return "", fmt.Errorf("%w: not the beginning of phone numbers; write the calling code and further digits, "+
			"for example +4915", ErrSpec)
	}
	return "+" + digits, nil
}

// A textTable is a hash table from texts to small numbers, for lists of millions of texts. All texts
// stand in one block, which the garbage collector does not scan, so that a text takes about ten bytes
// more than its length. It is not safe for concurrent use until it is complete.
type textTable struct {
	seed    maphash.Seed
	slots   []uint32 // offset of an entry in block, plus 1; 0 if free. Their number is a power of two
	block   []byte   // entries: the length of the text, the text, its number; both numbers as uvarints
	size    int
	lengths uint64 // bits, at the lengths of the texts that may be prefixes
}

// insert adds text unless the table has it, and returns the number that the table then has for it. No list of
// the permitted size, 128 MiB, makes a block that is longer than offsets of 32 bits reach.
func (t *textTable) insert(text string, number uint32) uint32 {
	if 4*(t.size+1) > 3*len(t.slots) {
		t.grow()
	}
	slot, known, found := t.locate(text)
	if found {
		return known
	}
	t.slots[slot] = uint32(len(t.block)) + 1
	t.block = binary.AppendUvarint(t.block, uint64(len(text)))
	t.block = append(t.block, text...)
	t.block = binary.AppendUvarint(t.block, uint64(number))
	t.size++
	t.lengths |= 1 << len(text)
	return number
}

// find returns the number of text.
func (t *textTable) find(text string) (number uint32, found bool) {
	if t.size > 0 {
		_, number, found = t.locate(text)
	}
	return number, found
}

// longest returns the number of the longest prefix of text that is in the table, of at most MaxPrefix bytes.
func (t *textTable) longest(text string) (number uint32, found bool) {
	for lengths := t.lengths & (1<<(len(text)+1) - 1); lengths != 0; {
		length := bits.Len64(lengths) - 1
		if number, found = t.find(text[:length]); found {
			return number, true
		}
		lengths &^= 1 << length
	}
	return 0, false
}

// locate returns the number of text or, if it is not found, the slot for it. There must be a free slot.
func (t *textTable) locate(text string) (slot int, number uint32, found bool) {
	mask := len(t.slots) - 1
	for slot = int(maphash.String(t.seed, text)) & mask; t.slots[slot] != 0; slot = (slot + 1) & mask {
		have, number, _ := t.entry(t.slots[slot] - 1)
		if string(have) == text {
			return slot, number, true
		}
	}
	return slot, 0, false
}

// entry returns the entry at an offset of the block, and the offset of the next.
func (t *textTable) entry(at uint32) (text []byte, number, next uint32) {
	rest := t.block[at:]
	length, n := binary.Uvarint(rest)
	text = rest[n : n+int(length)]
	value, m := binary.Uvarint(rest[n+int(length):])
	return text, uint32(value), at + uint32(n) + uint32(length) + uint32(m)
}

// grow doubles the slots.
func (t *textTable) grow() {
	if t.slots == nil {
		t.seed = maphash.MakeSeed()
	}
	t.slots = make([]uint32, max(8, 2*len(t.slots)))
	mask := len(t.slots) - 1
	for at := uint32(0); int(at) < len(t.block); {
		text, _, next := t.entry(at)
		slot := int(maphash.Bytes(t.seed, text)) & mask
		for t.slots[slot] != 0 {
			slot = (slot + 1) & mask
		}
		t.slots[slot], at = at+1, next
	}
}

// trim frees memory that further entries would use.
func (t *textTable) trim() {
	if cap(t.block)-len(t.block) > len(t.block)/16 {
		t.block = append(make([]byte, 0, len(t.block)), t.block...)
	}
}
