package admin

import (
	"cmp"
	"context"
)

// A Role is what an operator may do.
type Role string

// The roles.
const (
	Read  Role = "read"  // look, and ask what would be
	Write Role = "write" // also change
)

// A Token is what an operator shows to be known.
type Token struct {
	Name string // of the operator, for the audit trail
	Text string // a secret
	Role Role
}

// An Operator is who asks.
type Operator struct {
	Name    string // of a token; Local without one
	Address string // HOST:PORT of the other end of the connection
	Role    Role
}

// Local is the name of operators on this machine, who need no token where none is set,
// and Admin that of those with Options.Token.
const (
	Local = "local"
	Admin = "admin"
)

// operatorKey is that of a context's operator.
type operatorKey struct{}

// WithOperator is ctx for what o does.
func WithOperator(ctx context.Context, o Operator) context.Context {
	return context.WithValue(ctx, operatorKey{}, o)
}

// OperatorOf is who asks; Local where nobody is named.
func OperatorOf(ctx context.Context) Operator {
	o, _ := ctx.Value(operatorKey{}).(Operator)
	o.Name = cmp.Or(o.Name, Local)
	return o
}
