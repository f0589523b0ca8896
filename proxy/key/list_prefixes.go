package key

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"iter"
	"math/bits"
	"strings"
)

// MaxPrefix is the maximum length of a prefix in a list, in bytes.
const MaxPrefix = 63

// ParsePrefixes is like ParseList for values that are prefixes of keys, such as ranges of phone numbers:
// the list has each key that begins with one of them. Numbers are written in international form, with or
// without the plus. See Spec.HasPrefixes for the keys that have them.
func ParsePrefixes(spec *Spec, entries iter.Seq[string]) (*List, []Problem) {
	l := &List{spec: spec, hasPrefixes: true}
	return l, l.add(entries, l.insertPrefix)
}

// HasPrefixes reports whether keys of spec begin with something that many of them have in common. Networks
// are prefixes already, and a country is a whole.
func (s *Spec) HasPrefixes() bool {
	if s.Of != nil {
		return s.Part.Kind != Country
	}
	return s.Join == nil && !s.From.Source.IsConstant() && !s.From.Source.IsAddress()
}

func (l *List) insertPrefix(entry string) error {
	text, err := l.spec.prefix(strings.TrimSpace(entry))
	if err == nil {
		l.texts.insert(text, 0)
	}
	return err
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

// dialedPrefix returns the beginning of phone numbers in E.164. No calling code begins with 0, so that a
// prefix as it is dialed within a country is not taken for another.
func dialedPrefix(entry string) (string, error) {
	dialed, extension, ok := dialedDigits(entry)
	digits := strings.TrimPrefix(dialed, "+")
	if !ok || extension || digits[0] == '0' {
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

// maxBlock is the maximum size of the block: offsets have 32 bits.
const maxBlock = 1<<32 - 1

// insert adds text unless the table has it, and returns the number that the table then has for it. It
// does nothing if the table is full, which no list of the permitted size makes it.
func (t *textTable) insert(text string, number uint32) uint32 {
	if 4*(t.size+1) > 3*len(t.slots) {
		t.grow()
	}
	slot, known, found := t.locate(text)
	if found {
		return known
	}
	if len(t.block)+len(text)+2*binary.MaxVarintLen32 > maxBlock {
		return number
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
	if t.size == 0 {
		return 0, false
	}
	_, number, found = t.locate(text)
	return number, found
}

// longest returns the longest prefix of text that is in the table, of at most MaxPrefix bytes, and its number.
func (t *textTable) longest(text string) (prefix string, number uint32, found bool) {
	for lengths := t.lengths & (1<<(len(text)+1) - 1); lengths != 0; {
		length := bits.Len64(lengths) - 1
		if number, found = t.find(text[:length]); found {
			return text[:length], number, true
		}
		lengths &^= 1 << length
	}
	return "", 0, false
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
