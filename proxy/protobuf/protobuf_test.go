package protobuf

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func TestFields_OfAMessage(t *testing.T) {
	b := AppendMessage(AppendText(AppendNumber(nil, 1, 300), 2, "text"), 3, AppendNumber(nil, 1, 7))
	b = protowire.AppendFixed64(protowire.AppendTag(b, 4, protowire.Fixed64Type), 9)
	var number, within uint64
	var text string
	var others []protowire.Number
	fields := Fields{1: &number, 2: &text, 3: func(b []byte) error { return Decode(b, Fields{1: &within}, nil) }}
	err := Decode(append(b, AppendNumber(nil, 5, 1)...), fields, func(n protowire.Number) { others = append(others, n) })
	if err != nil || number != 300 || text != "text" || within != 7 || !slices.Equal(others, []protowire.Number{0, 5}) {
		t.Errorf("%d, %q, %d and others %v, %v", number, text, within, others, err)
	}
	if b := AppendText(AppendNumber(nil, 1, 0), 2, ""); len(b) != 0 {
		t.Errorf("what is empty has %d bytes", len(b))
	}
}

// Whatever a message is cut to is read or refused, and what is done with a field can end it.
func TestFields_OfNoMessage(t *testing.T) {
	b := AppendText(AppendNumber(nil, 1, 300), 2, "text")
	for n := range len(b) {
		if err := Decode(b[:n], nil, nil); (err != nil) != (n != 0 && n != 3) || err != nil && !errors.Is(err, ErrMessage) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	enough := errors.New("enough")
	if err := Decode(b, Fields{2: func([]byte) error { return enough }}, nil); !errors.Is(err, enough) {
		t.Errorf("%v; want the error of the function", err)
	}
}

// A message that is written in place is the same as one that is appended, whatever its length.
func TestBegin_WritesWhatAppendMessageDoes(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 129, 16383, 16384, 100_000} {
		within := AppendText(nil, 2, strings.Repeat("x", n))
		b, outer := Begin(AppendNumber(nil, 1, 5), 3)
		b, inner := Begin(b, 4)
		b = End(End(append(b, within...), inner), outer)
		if want := AppendMessage(AppendNumber(nil, 1, 5), 3, AppendMessage(nil, 4, within)); !bytes.Equal(b, want) {
			t.Errorf("%d bytes: differs from AppendMessage", n)
		}
	}
}
