package decisions

import (
	"strings"
	"unicode/utf8"

	"github.com/weir-proxy/weir/proxy/key"
)

// labelBytes is the size of the texts of a key that are kept to be shown. A phone number, an
// address or both fit.
const labelBytes = 39

// A Label holds the texts of a key in a fixed size, so that storing one costs only a copy. Of a
// text that is too long, the beginning and the end are kept; nothing else of it is ever shown. It
// is shown as Display says, masked if the key is sensitive. After the text of a range of phone numbers
// there may be its country, which Masked leaves out.
type Label struct {
	size uint8
	text [labelBytes]byte // the texts, separated by NUL
}

// Reset makes l empty.
func (l *Label) Reset() { l.size = 0 }

// Texts returns the texts of the key, as far as they fitted.
func (l *Label) Texts() []string { return strings.Split(string(l.text[:l.size]), "\x00") }

// minPartBytes is the minimum size of a text beside the other texts of its key: enough for a phone
// number.
const minPartBytes = 16

// AddPart adds a text; rest is the number of texts that follow. A text that is too long is cut in the
// middle, where it gets a star.
func (l *Label) AddPart(text string, rest int) {
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

func (l *Label) add(text string) { l.size += uint8(copy(l.text[l.size:], text)) }

// Masked returns the masked texts of the key.
func (l *Label) Masked(d key.Display, shapes []key.Shape) string {
	texts := l.Texts()
	for i, t := range texts {
		if !utf8.ValidString(t) { // cut within a character
			texts[i] = strings.ToValidUTF8(t, "")
		}
	}
	return d.Texts(shapes, texts)
}
