package proxy

import (
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/respond"
)

// fieldLines are header fields that are the same in many responses by Weir itself. For HTTP/1.1 they
// are validated and rendered once.
type fieldLines []fieldLine

type fieldLine struct {
	field    respond.Field
	rendered http1.FieldBlock
}

func newFieldLines(fields []respond.Field) (all fieldLines) {
	for _, f := range fields {
		if rendered, err := http1.NewFieldBlock(f.Name, f.Value); err == nil { // otherwise add reports the error
			all = append(all, fieldLine{f, rendered})
		}
	}
	return all
}

// add adds f to the head of a response.
func (all fieldLines) add(head *http1.Head, f *respond.Field) {
	for i := range all {
		if l := &all[i]; l.field == *f { // a field of these usually shares their memory, so that this compares pointers
			head.AddBlock(l.rendered)
			return
		}
	}
	head.Add(f.Name, f.Value)
}
