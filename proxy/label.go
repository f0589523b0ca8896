package proxy

import (
	"strings"
	"unicode/utf8"

	"github.com/weir-proxy/weir/proxy/key"
)

// labelBytes is how much is kept of the texts of a key, to be shown masked: all of a
// phone number, an address or both.
const labelBytes = 39

// A label is the texts of a key, in a size that is always the same, so that keeping one
// costs a copy. Of a text that is too long the beginning and the end are kept, which are
// all that is shown of it. It never leaves the process as it is.
type label struct {
	size uint8
	text [labelBytes]byte // the texts, with NULs between
}

// eachLabel is how many bytes a text has at least beside the others of its key: enough
// for a phone number.
const eachLabel = 16

// put takes up one more text; rest is how many are still to come. A text that is too long
// has a star where it was cut.
func (l *label) put(text string, rest int) {
	if l.size > 0 && l.size < labelBytes {
		l.text[l.size] = 0
		l.size++
	}
	left := labelBytes - int(l.size)
	room := max(left-rest*eachLabel, left/(rest+1)-1)
	switch {
	case len(text) <= room:
		l.add(text)
	case room >= 3:
		l.add(text[:room/2])
		l.add("*")
		l.add(text[len(text)-(room-room/2-1):])
	}
}

func (l *label) add(text string) { l.size += uint8(copy(l.text[l.size:], text)) }

// shown is how people see the key.
func (l *label) shown(d key.Display, shapes []key.Shape) string {
	texts := strings.Split(string(l.text[:l.size]), "\x00")
	for i, t := range texts {
		if !utf8.ValidString(t) { // cut in the middle of a letter
			texts[i] = strings.ToValidUTF8(t, "")
		}
	}
	return d.Texts(shapes, texts)
}

// fillLabel fills l with the texts of a key of x.
func (x *exchange) fillLabel(l *label, k *extractedKey) {
	l.size = 0
	if k.by.Join == nil {
		l.put(k.text, 0)
		return
	}
	leaves := x.route.leaves[k.by]
	for n, leaf := range leaves {
		text := "*" // unless a limit looks at it by itself
		for i := range x.extracted.keys {
			if x.extracted.keys[i].by == leaf {
				text = x.extracted.keys[i].text
				break
			}
		}
		l.put(text, len(leaves)-n-1)
	}
}
