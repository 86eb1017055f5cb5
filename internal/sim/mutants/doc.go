// Package mutants holds no code, only tests: bugs that are planted into copies of the product's files, one at a time, and
// looked for by the simulator. A bug that it does not find is a hole in its checks.
//
// Whoever changes the simulator or the code that a bug is planted into runs it: go test ./internal/sim/mutants checks that
// every bug can still be planted and looks for two of them, make mutants looks for all.
//
// What it never does: write into the tree. The copies are given to the compiler with -overlay.
package mutants
