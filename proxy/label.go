package proxy

import (
	"strings"
	"unicode/utf8"

	"github.com/weir-proxy/weir/proxy/key"
)

// labelBytes is the size of the texts of a key that are kept to be shown masked. A phone number, an
// address or both fit.
const labelBytes = 39

// A label holds the texts of a key in a fixed size, so that storing one costs only a copy. Of a
// text that is too long, the beginning and the end are kept; nothing else of it is ever shown. It
// is never shown unmasked.
type label struct {
	size uint8
	text [labelBytes]byte // the texts, separated by NUL
}

// eachLabel is the minimum size of a text beside the other texts of its key: enough for a phone
// number.
const eachLabel = 16

// put adds a text; rest is the number of texts that follow. A text that is too long is cut in the
// middle, where it gets a star.
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

// shown returns the masked texts of the key.
func (l *label) shown(d key.Display, shapes []key.Shape) string {
	texts := strings.Split(string(l.text[:l.size]), "\x00")
	for i, t := range texts {
		if !utf8.ValidString(t) { // cut within a character
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
		text := "*" // if no limit counts by the part alone
		for i := range x.extracted.keys {
			if x.extracted.keys[i].by == leaf {
				text = x.extracted.keys[i].text
				break
			}
		}
		l.put(text, len(leaves)-n-1)
	}
}
