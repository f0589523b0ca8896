package protobuf

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func TestFields_OfAMessage(t *testing.T) {
	b := AppendMessage(AppendText(AppendNumber(nil, 1, 300), 2, "text"), 3, AppendNumber(nil, 1, 7))
	b = protowire.AppendFixed64(protowire.AppendTag(b, 4, protowire.Fixed64Type), 9)
	var numbers []protowire.Number
	err := EachField(b, func(f Field) error {
		numbers = append(numbers, f.Number)
		switch f.Number {
		case 1:
			if f.Varint != 300 {
				t.Errorf("the number is %d", f.Varint)
			}
		case 2:
			if string(f.Bytes) != "text" {
				t.Errorf("the text is %q", f.Bytes)
			}
		case 3:
			return EachField(f.Bytes, func(f Field) error {
				if f.Varint != 7 {
					t.Errorf("the number within is %d", f.Varint)
				}
				return nil
			})
		}
		return nil
	})
	if want := []protowire.Number{1, 2, 3, 0}; err != nil || len(numbers) != 4 || [4]protowire.Number(numbers) != [4]protowire.Number(want) {
		t.Errorf("fields %v, %v; want %v", numbers, err, want)
	}
	if b := AppendText(AppendNumber(nil, 1, 0), 2, ""); len(b) != 0 {
		t.Errorf("what is empty has %d bytes", len(b))
	}
}

// Whatever a message is cut to is read or refused, and what is done with a field can end it.
func TestFields_OfNoMessage(t *testing.T) {
	b := AppendText(AppendNumber(nil, 1, 300), 2, "text")
	for n := range len(b) {
		if err := EachField(b[:n], func(Field) error { return nil }); (err != nil) != (n != 0 && n != 3) || err != nil && !errors.Is(err, ErrMessage) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	enough := errors.New("enough")
	if err := EachField(b, func(Field) error { return enough }); !errors.Is(err, enough) {
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
