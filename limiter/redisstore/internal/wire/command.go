package wire

import (
	"fmt"
	"strconv"
)

// AppendBulk appends text as one argument of a command.
func AppendBulk[T string | []byte](out []byte, text T) []byte {
	out = AppendHeader(out, '$', len(text))
	out = append(out, text...)
	return append(out, "\r\n"...)
}

// AppendHeader appends what a command (*) or an argument ($) begins with: its length.
func AppendHeader(out []byte, kind byte, n int) []byte {
	out = strconv.AppendInt(append(out, kind), int64(n), 10)
	return append(out, "\r\n"...)
}

// AppendCount appends a number as one argument.
func AppendCount(out []byte, n int) []byte {
	var digits [20]byte
	return AppendBulk(out, strconv.AppendInt(digits[:0], int64(n), 10))
}

// AppendCall appends a command that runs a script on keys with args, each a string, a
// []byte or an integer. call is the name of the command and the script, as AppendBulk
// writes them.
func AppendCall(out []byte, call string, keys []string, args []any) []byte {
	out = append(AppendHeader(out, '*', 3+len(keys)+len(args)), call...)
	out = AppendCount(out, len(keys))
	for _, k := range keys {
		out = AppendBulk(out, k)
	}
	for _, a := range args {
		if text, ok := a.([]byte); ok {
			out = AppendBulk(out, text)
		} else {
			out = AppendBulk(out, fmt.Sprint(a))
		}
	}
	return out
}
