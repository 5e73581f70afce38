"""Small models in text form, one for each way in which a model can be weakly typed."""

HEAD = '<ir_version: 8, opset_import: ["": 17]> '
HEAD18 = '<ir_version: 8, opset_import: ["": 18]> '
CUSTOM = '<ir_version: 8, opset_import: ["": 17, "foo": 1]> '

# Every one of these loads in onnxruntime and runs on random inputs in which each symbol is 2.
RUNNABLE = {
    "stale_rank0": HEAD + "g (float[3,4] x, float[4,5] w) => (float y) { y = MatMul(x, w) }",
    "stale_rank0_beside_symbolic": HEAD
    + "g (float[batch,4] x, float[4,5] w) => (float y, float[batch,5] z) { y = MatMul(x, w) z = Relu(y) }",
    "symbol_beside_stale": HEAD + "g (float[batch,4] x, float[4,5] w) => (float[rows,6] y) { y = MatMul(x, w) }",
    "declared_0_1": HEAD + "g (float[batch,1] x) => (float[0,1] y) { y = Relu(x) }",
    "declared_minus_1": HEAD + "g (float[3,2] x) => (float[-1,2] y) { y = Relu(x) }",
    "declared_open": HEAD + "g (float[batch,2] x) => (float[?,?] y) { y = Relu(x) }",
    "k_computed": HEAD
    + """g (float[3,5] ref, float[2,10] x) => (float v, int64 i) <int64[1] zero = {0}> {
        s = Shape(ref) k = Gather(s, zero) v, i = TopK(x, k) }""",
    "k_behind_reduction": HEAD18
    + """g (float[2,10] x) => (float v, int64 i) <int64[2] first = {0, 1}, int64[1] three = {3}> {
        s = Shape(x) m = ReduceMin<keepdims = 1>(s, zero) k = Min(m, three) v, i = TopK(x, k)
        zero = Constant<value = int64[1] {0}>() r = ReduceMean<keepdims = 0>(v, zero) }""",
    "reduction_axes_computed": HEAD18
    + """g (float[2,3,4] x, float[1] one) => (float y, float z) {
        axes = Shape(one) y = ReduceSum(x, axes) z = ReduceMax<keepdims = 0>(x, axes) }""",
    "nonzero": HEAD + "g (float[n,4] x) => (int64 y) { r = Relu(x) y = NonZero(r) }",
    "nonzero_transposed": HEAD
    + "g (float[n,4] x) => (float y) { nz = NonZero(x) t = Transpose(nz) y = GatherND(x, t) }",
    "nms": HEAD
    + """g (float[1,6,4] boxes, float[1,2,6] scores) => (int64 y) <int64 k = {3}, float t = {0.5}> {
        y = NonMaxSuppression(boxes, scores, k, t, t) }""",
    "reshape_computed": HEAD
    + "g (float[2,6] x, float[3,4] like) => (float y) { s = Shape(like) y = Reshape(x, s) z = Relu(y) }",
    "gather_nd": HEAD + "g (float[2,3,4] x) => (float y) <int64[2,2] i = {0, 1, 1, 2}> { y = GatherND(x, i) }",
    "fp16_cast": HEAD
    + """g (float16[1,3,8,8] x) => (float16[1,2,8,8] y) <float[2,3,1,1] w = {1, 2, 3, 4, 5, 6}> {
        c = Cast<to = 1>(x) r = Conv(c, w) y = Relu(r) }""",
    "if_different_ranks": HEAD
    + """g (float[2,3] x, bool c) => (float[2,3] y) { y = If(c) <
        then_branch = t () => (float a) { a = Relu(x) },
        else_branch = e () => (float[2,2] b) { b = ReduceSum<keepdims = 0>(x) }> }""",
    "if_captures": HEAD
    + """g (float[n,3] x, bool c) => (float y) <float[3] w = {1, 2, 3}> { r = Relu(x) y = If(c) <
        then_branch = t () => (float a) { a = Add(r, w) },
        else_branch = e () => (float b) { b1 = Mul(r, w) b = Neg(b1) }> }""",
    "nested_if_constants": HEAD
    + """g (float[2,3] x, bool c) => (float y) <int64[2] s = {3, 2}> { y = If(c) <
        then_branch = t () => (float a) { a = If(c) <
            then_branch = tt () => (float aa) { aa = Reshape(x, s) },
            else_branch = te () => (float ab) { ab = Transpose(x) }> },
        else_branch = e () => (float b) { b = Reshape(x, s) }> }""",
    "loop": HEAD
    + """g (float[2,3] x, bool c) => (float y, float s) <int64 n = {3}> { y, s = Loop(n, c, x) <
        body = b (int64 i, bool ci, float state) => (bool co, float next, float each) {
            co = Identity(ci) next = Add(state, x) each = ReduceSum<keepdims = 0>(next) }> }""",
    "loop_counter": HEAD
    + """g (float[2,3] x, bool c) => (float y) <int64 n = {3}> { y = Loop(n, c, x) <
        body = b (int64 i, bool ci, float state) => (bool co, float next) {
            co = Identity(ci) f = Cast<to = 1>(i) next = Add(state, f) }> }""",
    "loop_counter_of_one": HEAD
    + """g (float[3] x, bool c) => (float y) <int64 n = {3}> { y = Loop(n, c, x) <
        body = b (int64[1] i, bool ci, float state) => (bool co, float next) {
            co = Identity(ci) f = Cast<to = 1>(i) next = Add(state, f) }> }""",
    "loop_growing": HEAD
    + """g (float[2,3] x, bool c) => (float[2,3] y) <int64 n = {3}> { y = Loop(n, c, x) <
        body = b (int64 i, bool ci, float[2,3] state) => (bool co, float[2,3] next) {
            co = Identity(ci) next = Concat<axis = 0>(state, x) }> }""",
    "loop_nested": HEAD
    + """g (float[2,3] x, bool c) => (float[?,?] y) <int64 n = {2}> { y = Loop(n, c, x) <
        body = b (int64 i, bool ci, float[?,?] state) => (bool co, float[?,?] next) {
            co = Identity(ci) next = Loop(n, ci, state) <
                body = bb (int64 j, bool cj, float[?,?] inner) => (bool cjo, float[?,?] inext) {
                    cjo = Identity(cj) inext = Add(inner, x) }> }> }""",
    "scan": HEAD
    + """g (float[3] init, float[4,3] x) => (float y, float s) { y, s = Scan<num_scan_inputs = 1,
        body = b (float state, float row) => (float next, float each) {
            next = Add(state, row) each = Mul(next, row) }>(init, x) }""",
    "identity_of_scales": HEAD
    + """g (float[1,1,4,4] x, bool c) => (float y, float z) <float[4] s = {1, 1, 2, 2}> {
        i = Identity(s) j = Identity(i)
        y = Resize(x, , j) z = If(c) <
        then_branch = t () => (float a) { k = Identity(i) a = Resize(x, , k) },
        else_branch = e () => (float b) { b = Resize(x, , f) }>
        f = Constant<value_floats = [1.0, 1.0, 2.0, 2.0]>() }""",
    "if_passes_outer": HEAD
    + """g (float[2,3] x, bool c) => (float y) { r = Relu(x) y = If(c) <
        then_branch = t () => (float[2,3] r) { n = Neg(x) },
        else_branch = e () => (float b) { b = If(c) <
            then_branch = tt () => (float x) { nn = Neg(x) },
            else_branch = te () => (float bb) { bb = Neg(r) }> }> }""",
    "sequence": HEAD
    + """g (float[2,3] x) => (float y) <int64 at = {1}> {
        s = SequenceConstruct(x, x) e = SequenceAt(s, at) y = Relu(e) }""",
    "optional": HEAD18
    + "g (float[2,3] x) => (float y, bool h) { o = Optional(x) h = OptionalHasElement(o) y = OptionalGetElement(o) }",
    "constants": HEAD
    + """g (float[1] x) => (float y) {
        a = Constant<value_float = 1.5>() b = Constant<value_floats = [1.0, 2.0]>() c = Constant<value_int = 3>()
        d = Constant<value_ints = [3, 4]>() e = Constant<value_string = "s">()
        f = Constant<value_strings = ["s", "t"]>()
        g1 = Constant<value = float16[2] {15360, 16384}>() y = Add(x, a) }""",
    "constant_of_shape": HEAD
    + """g (float[2,3] x) => (float y) { s = Shape(x) a = ConstantOfShape(s)
        b = ConstantOfShape<value = int64[1] {1}>(s) c = ConstantOfShape<value = float16[1] {15360}>(s)
        d = ConstantOfShape<value = bool[1] {1}>(s) e = ConstantOfShape<value = uint8[1] {1}>(s) y = Add(x, a) }""",
    "qdq_fp16": '<ir_version: 9, opset_import: ["": 19]> '
    """g (float16[2,3] x) => (float[2,3] y) <float16 s = {14336}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Relu(d) }""",
    "qdq_default": HEAD
    + """g (float[2,3] x) => (float[2,3] y) <float s = {0.5}> {
        q = QuantizeLinear(x, s) y = DequantizeLinear(q, s) u, us, uz = DynamicQuantizeLinear(x) }""",
    "initializers_as_inputs": '<ir_version: 3, opset_import: ["": 9]> '
    """g (float[2,6] x, int64[2] s) => (float y) <int64[2] s = {3, 4}> { y = Reshape(x, s) }""",
    "stale_value_info": HEAD
    + """g (float[1,2,4,4] x) => (float[1,3,8,8] y) <float[4] s = {1, 1, 2, 2}, float[1,2,4,4] u, int32[3] gone,
        float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}> { u = Resize(x, , s) y = Conv(u, w) }""",
    "stale_split": HEAD
    + """g (float[2,144] x) => (float[2,64] a, float[2,80] b) <int64[2] s = {64, 80}, float[2,72] u, float[2,72] v> {
        u, v = Split<axis = 1>(x, s) a = Relu(u) b = Relu(v) }""",
    "unsorted": HEAD + "g (float[2,3] x) => (float[2,3] y) { y = Neg(b) b = Relu(a) a = Abs(x) }",
    "range": HEAD
    + """g (float[n,3] x) => (int64 y) <int64 zero = {0}, int64 one = {1}> {
        s = Shape(x) n1 = Gather(s, zero) y = Range(zero, n1, one) }""",
    "random": HEAD
    + """g (float[2,3] x) => (float y) { a = EyeLike<dtype = 7>(x) b = RandomNormalLike<dtype = 11>(x)
        c = RandomUniform<shape = [2, 2]>() d = Multinomial<dtype = 7>(x) y = CastLike(a, x)
        e = Bernoulli<dtype = 9>(p) p = Sigmoid(x) }""",
    "optional_outputs": HEAD
    + """g (float[1,2,4] x) => (float y) <float[1,8,4] w, float[1,8,2] r> { , y = LSTM<hidden_size = 2>(x, w1, r1)
        w1 = ConstantOfShape(ws) r1 = ConstantOfShape(rs) ws = Constant<value_ints = [1, 8, 4]>()
        rs = Constant<value_ints = [1, 8, 2]>() }""",
}

# These can't run, or onnxruntime doesn't know them; their types are determined all the same.
TYPED_ONLY = {
    "k_above_axis": HEAD
    + """g (float[n,3] x) => (float y, float z) <int64[1] k = {5}, int64[2] s = {3, 5}> {
        a = Add(x, x) v, i = TopK(a, k) c = Cast<to = 1>(i) y = Reshape(c, s) z = Relu(x) }""",
    "k_negative": HEAD
    + "g (float[3,4,5,10] x) => (float v, int64 i) <int64[1] k = {-1}> { v, i = TopK<axis = 2>(x, k) }",
    "custom_declared": CUSTOM + "g (float[n,3] x) => (float y) <float[n,3] v> { v = foo.Bar(x) y = Relu(v) }",
    "custom_undeclared": CUSTOM
    + """g (float[n,3,4,4] x) => (float y) <float[2,3,1,1] w = {1, 2, 3, 4, 5, 6}> {
        v = foo.Bar(x) u = foo.Bar(v) c = Conv(u, w) r = foo.Bar(x) y = Relu(c) z = Add(r, y)
        t = Transpose(v) m = MatMul(t, y) }""",
}

HEALTHY = {
    "plain": HEAD + "g (float[batch,3] x) => (float[batch,3] y) { [one] y = Relu(x) }",
    "value_info": HEAD
    + "g (float[batch,3] x) => (float[batch,3] y) <float[batch,3] a> { [one] a = Abs(x) [two] y = Relu(a) }",
    "open": HEAD + "g (float[?,3] x) => (float[rows,3] y) { [one] y = Relu(x) }",
    "custom": CUSTOM + "g (float[n,3] x) => (float[n,3] y) <float[n,3] v> { [one] v = foo.Bar(x) [two] y = Relu(v) }",
    "really_empty": HEAD
    + """g (float[2,1] x) => (float[2,1] y, float[2,0] z) <float[2,0] e = {}> {
        [one] y = Concat<axis = 1>(x, e) [two] z = Relu(e) }""",
    "captured_value_info": HEAD
    + """g (float[2,3] x, bool c) => (float[2,3] y) { [r] r = Relu(x) [if] y = If(c) <
        then_branch = t () => (float[2,3] a) <float[2,3] r> { [a] a = Abs(r) },
        else_branch = e () => (float[2,3] b) { [b] b = Neg(r) }> }""",
    "initializers_as_inputs": '<ir_version: 3, opset_import: ["": 9]> '
    "g (float[2,6] x, int64[2] s) => (float[3,4] y) <int64[2] s = {3, 4}> { [one] y = Reshape(x, s) }",
}
