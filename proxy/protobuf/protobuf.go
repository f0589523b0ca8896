// Package protobuf reads and writes the fields of protocol buffer messages whose generated Go packages would
// weigh more than the few fields that are needed.
// See https://protobuf.dev/programming-guides/encoding/.
package protobuf

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMessage reports that bytes are no message.
var ErrMessage = errors.New("not a message of this type")

// Fields are where Decode stores the fields of a message, by number: *string, *bool, *uint64, or a function that is
// called for each message or text with this number. Those that are nil are left out.
type Fields []any

// Decode stores the fields of a message and calls other, unless it is nil, for each that is not in fields, with 0 for
// one that is neither a number nor bytes. Bytes that functions get share the memory of the message. It returns the
// first error of a function, or ErrMessage.
func Decode(data []byte, fields Fields, other func(protowire.Number)) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return ErrMessage
		}
		data = data[n:]
		var varint uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(data)
		default:
			number, n = 0, protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return ErrMessage
		}
		data = data[n:]
		if number == 0 || int(number) >= len(fields) {
			if other != nil {
				other(number)
			}
			continue
		}
		switch to := fields[number].(type) {
		case *string:
			*to = string(text)
		case *bool:
			*to = varint != 0
		case *uint64:
			*to = varint
		case func([]byte) error:
			if err := to(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// AppendNumber appends a number to a message. 0 is left out, as in proto3.
func AppendNumber(b []byte, field protowire.Number, value uint64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
}

// AppendText appends a text to a message. An empty one is left out, as in proto3.
func AppendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// AppendMessage appends a message to the one that has it as a field.
func AppendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

// Begin begins a message in the one that has it as a field. What follows until End belongs to it.
func Begin(b []byte, field protowire.Number) (begun []byte, at int) {
	b = append(protowire.AppendTag(b, field, protowire.BytesType), 0) // the length of most messages is one byte
	return b, len(b)
}

// End ends the message that began at at.
func End(b []byte, at int) []byte {
	n := len(b) - at
	more := protowire.SizeVarint(uint64(n)) - 1
	b = append(b, make([]byte, more)...)
	copy(b[at+more:], b[at:at+n])
	protowire.AppendVarint(b[:at-1], uint64(n))
	return b
}
