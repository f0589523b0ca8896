package proxy

import (
	"strings"
	"unicode/utf8"

	"github.com/weir-proxy/weir/proxy/key"
)

// labelBytes is the size of the texts of a key that are kept to be shown. A phone number, an
// address or both fit.
const labelBytes = 39

// A label holds the texts of a key in a fixed size, so that storing one costs only a copy. Of a
// text that is too long, the beginning and the end are kept; nothing else of it is ever shown. It
// is shown as Display says, masked if the key is sensitive.
type label struct {
	size uint8
	text [labelBytes]byte // the texts, separated by NUL
}

// minPartBytes is the minimum size of a text beside the other texts of its key: enough for a phone
// number.
const minPartBytes = 16

// addPart adds a text; rest is the number of texts that follow. A text that is too long is cut in the
// middle, where it gets a star.
func (l *label) addPart(text string, rest int) {
	if l.size > 0 && l.size < labelBytes {
		l.text[l.size] = 0
		l.size++
	}
	left := labelBytes - int(l.size)
	space := max(left-rest*minPartBytes, left/(rest+1)-1)
	switch {
	case len(text) <= space:
		l.add(text)
	case space >= 3:
		l.add(text[:space/2])
		l.add("*")
		l.add(text[len(text)-(space-space/2-1):])
	}
}

func (l *label) add(text string) { l.size += uint8(copy(l.text[l.size:], text)) }

// masked returns the masked texts of the key.
func (l *label) masked(d key.Display, shapes []key.Shape) string {
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
	if k.spec.Join == nil {
		l.addPart(k.text, 0)
		return
	}
	leaves := x.route.leaves[k.spec]
	for n, leaf := range leaves {
		text := "*" // if no limit counts by the part alone
		for i := range x.extracted.keys {
			if x.extracted.keys[i].spec == leaf {
				text = x.extracted.keys[i].text
				break
			}
		}
		l.addPart(text, len(leaves)-n-1)
	}
}
