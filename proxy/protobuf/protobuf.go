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

// A Field is a field of a message that is a number or bytes.
type Field struct {
	Number protowire.Number // 0 for a field of another kind
	Varint uint64
	Bytes  []byte // of a text or message; they share the memory of the message
}

// EachField calls do for the fields of a message, until it returns an error, and returns that or ErrMessage.
func EachField(data []byte, do func(Field) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return ErrMessage
		}
		data = data[n:]
		f := Field{Number: number}
		switch kind {
		case protowire.VarintType:
			f.Varint, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			f.Bytes, n = protowire.ConsumeBytes(data)
		default:
			f.Number, n = 0, protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return ErrMessage
		}
		data = data[n:]
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

// Fields are where Decode stores the fields of a message, by number: *string, *bool, *uint64, or a function that is
// called for each message or text with this number.
type Fields map[protowire.Number]any

// Decode stores the fields of a message and calls other, unless it is nil, for each that is not in fields.
func Decode(data []byte, fields Fields, other func(protowire.Number)) error {
	return EachField(data, func(f Field) error {
		switch to := fields[f.Number].(type) {
		case *string:
			*to = string(f.Bytes)
		case *bool:
			*to = f.Varint != 0
		case *uint64:
			*to = f.Varint
		case func([]byte) error:
			return to(f.Bytes)
		case nil:
			if _, known := fields[f.Number]; !known && other != nil {
				other(f.Number)
			}
		}
		return nil
	})
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
