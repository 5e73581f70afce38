"""Small models in text form for half precision, each with one thing in it that a lowering can get wrong.

All are valid, and onnxruntime runs them in float32 with finite outputs (`feeds` in precision_checks.py).
"""


def head(opset: int = 17, **domains: int) -> str:
    imports = "".join(f', "{domain}": {version}' for domain, version in domains.items())
    return f'<ir_version: {8 if opset < 19 else 9}, opset_import: ["": {opset}{imports}]> '


H, H18, H20 = head(), head(18), head(20)

PLAIN = {
    "conv_relu": H
    + """g (float[n,2,4,4] x) => (float[n,2,4,4] y) <float[2,2,1,1] w = {1, -0.5, 0.25, 2}, float[2] b = {0.1, -0.1}> {
        c = Conv(x, w, b) y = Relu(c) }""",
    "one_node": H + "g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }",
    "fan_out": H
    + """g (float[2,3] x) => (float[2,3] y, float[2,3] z, float[2,3] u) { y = Relu(x) z = Neg(x) u = Add(y, z) }""",
    "output_read_on": H + "g (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Relu(x) z = Neg(y) }",
    "unsorted": H + "g (float[2,3] x) => (float[2,3] y) { y = Neg(b) b = Relu(a) a = Abs(x) }",
    "matmul_gemm": H
    + """g (float[2,4] x) => (float[2,2] y) <float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3}, float[2,3] v = {1,2,3,4,5,6}> {
        m = MatMul(x, w) g1 = Gemm<transB = 1>(m, v) y = Softmax<axis = -1>(g1) }""",
    "lstm": H
    + """g (float[3,1,2] x) => (float[3,1,1,1] y, float[1,1,1] c) <float[1,4,2] w = {1,2,-1,1,0.5,1,1,2},
        float[1,4,1] r = {1, 0.5, -1, 1}, float[1,8] b = {0,0,0,0,0.1,0,0,0}> {
        y, , c = LSTM<hidden_size = 1>(x, w, r, b) }""",
    "gru": H
    + """g (float[3,1,2] x) => (float[1,1,1] y) <float[1,3,2] w = {1,2,-1,1,0.5,1}, float[1,3,1] r = {1, 0.5, -1}> {
        , y = GRU<hidden_size = 1>(x, w, r) }""",
    "batch_norm": H
    + """g (float[1,2,2,2] x) => (float[1,2,2,2] y) <float[2] s = {1, 2}, float[2] b = {0, 1}, float[2] m = {0.1, 0.2},
        float[2] v = {1, 0.00000001}> { n = Relu(x) y = BatchNormalization(n, s, b, m, v) }""",
    "layer_norm": H
    + """g (float[2,4] x) => (float[2,4] y, float[2,1] m) <float[4] s = {1, 2, 1, 1}, float[4] b = {0, 1, 0, 0}> {
        l, m, i = LayerNormalization<epsilon = 0.000000000001>(x, s, b) y = Mul(l, i) }""",
    "dropout": H
    + """g (float[2,3] x) => (float[2,3] y) <float r = {0.5}> { d, k = Dropout(x, r) f = Cast<to = 1>(k) y =
        Mul(d, f) }""",
    "celu": H + "g (float[2,3] x) => (float[2,3] y) { r = Neg(x) c = Celu(r) y = Neg(c) }",
    "nms": H
    + """g (float[1,6,4] boxes, float[1,2,6] scores) => (int64[k,3] y) <int64 k = {3}, float t = {0.5}> {
        s = Sigmoid(scores) b = Mul(boxes, t) y = NonMaxSuppression(b, s, k, t, t) }""",
    "topk": H
    + """g (float[2,8] x) => (float[2,3] v, float[2,3] i) <int64[1] k = {3}> {
        n = Neg(x) v, j = TopK(n, k) i = Cast<to = 1>(j) }""",
    "isinf_13": head(13)
    + """g (float[2,3] x) => (float[2,3] y) <float[3] o = {1, 2, 3}> {
        c = Mul(x, o) d = Cast<to = 11>(c) i = IsInf(d) j = IsInf(c) g1 = Greater(c, o) a = And(i, g1) b = Or(a, j)
        y = Where(b, c, o) }""",
    "isinf_20": H20
    + """g (float[2,3] x) => (float[2,3] y) <float[3] o = {1, 2, 3}> {
        c = Mul(x, o) j = IsInf(c) g1 = Greater(c, o) b = Or(g1, j) y = Where(b, c, o) }""",
    "attention": H
    + """g (float[1,4,8] q, float[1,4,8] k, float[1,4,8] v) => (float[1,4,8] y) <float s = {0.35355339}> {
        t = Transpose<perm = [0, 2, 1]>(k) m = MatMul(q, t) c = Mul(m, s) p = Softmax<axis = -1>(c) y =
        MatMul(p, v) }""",
}

RESIZE = {
    "resize_constant": H
    + """g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] s = {1, 1, 2, 2}> { r = Relu(x) y = Resize(r, , s) }""",
    "resize_inexact_scales": H
    + """g (float[1,1,30,30] x) => (float[1,1,100,?] y) <float[4] s = {1, 1, 3.3333334, 1.1}> {
        r = Relu(x) u = Resize(r, , s) y = Neg(u) }""",
    "resize_identity": H
    + """g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] s = {1, 1, 2, 2}> {
        r = Relu(x) i = Identity(s) y = Resize(r, , i) }""",
    "resize_floats": H
    + """g (float[1,1,4,4] x) => (float[1,1,8,8] y) {
        r = Relu(x) s = Constant<value_floats = [1.0, 1.0, 2.0, 2.0]>() y = Resize(r, , s) }""",
    "resize_computed": H
    + """g (float[1,1,h,w] x, float[1,1,a,b] like) => (float y) {
        r = Relu(x) p = Shape(r) q = Shape(like) pf = Cast<to = 1>(p) qf = Cast<to = 1>(q) s = Div(qf, pf)
        u = Resize(r, , s) y = Add(u, like) }""",
    "resize_sizes_by_float": H
    + """g (float[1,1,h,w] x) => (float y) <float[4] two = {1, 1, 2, 2}> { r = Relu(x) p = Shape(r)
        f = Cast<to = 1>(p) d = Mul(f, two) e = Floor(d) s = Cast<to = 7>(e) y = Resize(r, , , s) }""",
    "resize_shared_scales": H
    + """g (float[1,1,4,4] x) => (float[1,1,8,8] y, float[1,1,4,4] z) <float[4] s = {1, 1, 2, 2}> {
        z = Mul(x, s) y = Resize(z, , s) }""",
    "resize_shared_empty": H
    + """g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[0] e = {}, int64[4] s = {1, 1, 8, 8}> {
        r = Relu(x) y = Resize(r, e, e, s) }""",
    "resize_empty_roi": H
    + """g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[0] e = {}, float[4] s = {1, 1, 2, 2}> {
        r = Relu(x) u = Resize(r, e, s) v = Concat<axis = 0>(e, e) w = ReduceSum(v) y = Add(u, w) }""",
    "resize_roi": H
    + """g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[8] roi = {0, 0, 0.1, 0.2, 1, 1, 0.8, 0.7},
        float[4] s = {1, 1, 2, 2}> { r = Relu(x)
        y = Resize<mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize">(r, roi, s) }""",
    "resize_in_branches": H
    + """g (float[1,1,4,4] x, bool c) => (float[1,1,8,8] y) <float[4] s = {1, 1, 2, 2}> { r = Relu(x) y = If(c) <
        then_branch = t () => (float[1,1,8,8] a) <float[0] e = {}> { a = Resize(r, e, s) },
        else_branch = f () => (float[1,1,8,8] b) <float[4] o = {1, 1, 2, 2}> { b1 = Resize(r, , o) b = Neg(b1) }> }""",
}

VALUES = {
    "shared_initializer": H
    + """g (float[2,3] x) => (float[2,3] y, float[2,3] z) <float[3] w = {0.1, 0.2, 0.3}> {
        y = Add(x, w) c = Celu(x) d = Celu(w) z = Add(c, d) }""",
    "shared_by_three": H
    + """g (float[2,3] x) => (float[2,3] y) <float[3] w = {0.1, 0.2, 0.3}> {
        a = Add(x, w) b = Mul(a, w) c = Celu(w) y = Sub(b, c) }""",
    "beyond_range": H
    + """g (float[2,3] x) => (float[2,3] y, float[2,3] z) <float[3] w = {70000, -70000, 1}> {
        r = Relu(x) m = Mul(r, w) y = Sigmoid(m) z = Neg(r) }""",
    "within_range": H + "g (float[2,3] x) => (float[2,3] y) <float t = {20000}> { a = Add(x, t) y = Div(a, t) }",
    "greatest_value": H + "g (float[2,3] x) => (float[2,3] y) <float t = {65504}> { y = Clip(x, , t) }",
    "clip_wide": H
    + "g (float[2,3] x) => (float[2,3] y) <float l = {-3.4e38}, float h = {3.4e38}> { c = Clip(x, l, h) y = Neg(c) }",
    "mask_where": H
    + """g (float[2,4] x, bool[2,4] m) => (float[2,4] y) <float big = {-3.4028235e38}> {
        w = Where(m, x, big) y = Softmax<axis = -1>(w) }""",
    "mask_add": H
    + """g (float[2,4] x, bool[2,4] m) => (float[2,4] y) <float big = {-3.4028235e38}, float one = {1}> {
        f = Cast<to = 1>(m) i = Sub(one, f) n = Mul(i, big) r = Neg(x) a = Add(r, n) y = Softmax<axis = -1>(a) }""",
    "mask_reshaped": H
    + """g (float[2,4] x, bool[2,4] m) => (float[2,4] y) <float big = {-3.4028235e38}, float z = {0},
        int64[1] axes = {0}> { w = Where(m, z, big) u = Unsqueeze(w, axes) s = Squeeze(u, axes) a = Add(s, x)
        p = Softmax<axis = -1>(a) n = Neg(p) y = Neg(n) }""",
    "mask_fill": H
    + """g (float[2,4] x, bool[2,4] m) => (float[2,4] y) { s = Shape(x)
        big = ConstantOfShape<value = float[1] {-3.4028235e38}>(s) w = Where(m, x, big) y = Softmax<axis = -1>(w) }""",
    "mask_computed": H
    + """g (float[2,4] x, bool[2,4] m) => (float[2,4] y) <float big = {-3.4e38}, int64[2] s = {2, 4}> {
        e = Expand(big, s) w = Where(m, x, e) y = Softmax<axis = -1>(w) }""",
    "mask_infinite": H
    + """g (float[2,4] x, bool[2,4] m) => (float[2,5] y) <float big = {-inf}, float[2,1] z = {0, 0}> {
        w = Where(m, x, big) c = Concat<axis = 1>(w, z) y = Softmax<axis = -1>(c) }""",
    "tiny_values": H + """g (float[2,4] x) => (float[2,4] y) <float[4] w = {-1e-9, 1e-9, 1, -1}> { y = Mul(x, w) }""",
    "tiny_only": H + "g (float[2,4] x) => (float[2,4] y) <float[4] w = {-1e-9, 1e-9, 2e-9, 3e-9}> { y = Mul(x, w) }",
    "eps_sqrt": H
    + """g (float[2,4] x) => (float[2,4] y) <float e = {1e-12}, float z = {0}> {
        q = Mul(x, z) v = Mul(q, q) a = Add(v, e) s = Sqrt(a) y = Div(q, s) }""",
    "eps_direct": H
    + """g (float[2,4] x) => (float[2,4] y) <float e = {1e-12}, float z = {0}> { q = Mul(x, z) a = Add(q, e)
        y = Div(q, a) }""",
    "eps_max": H
    + """g (float[2,4] x) => (float[2,4] y) <float e = {1e-12}, float z = {0}> { q = Mul(x, z) a = Max(q, e)
        y = Div(q, a) }""",
    "eps_clip": H
    + """g (float[2,4] x) => (float[2,4] y) <float e = {1e-12}, float z = {0}> { q = Mul(x, z) a = Clip(q, e)
        y = Div(q, a) }""",
    "eps_pow": H
    + """g (float[2,4] x) => (float[2,4] y) <float e = {1e-12}, float z = {0}, float p = {-0.5}> {
        q = Mul(x, z) a = Add(e, q) s = Pow(a, p) y = Mul(q, s) }""",
    "eps_reciprocal": H
    + """g (float[2,4] x) => (float[2,4] y) <float e = {1e-12}, float z = {0}> {
        q = Mul(x, z) a = Add(q, e) s = Reciprocal(a) y = Mul(q, s) }""",
    "eps_log": H
    + """g (float[2,4] x) => (float[2,4] y) <float e = {1e-12}, float z = {0}> { q = Mul(x, z) a = Add(q, e)
        y = Log(a) }""",
    "eps_mixed": H
    + """g (float[2,4] x) => (float[2,4] y) <float[4] e = {1e-12, 1, 2, 3}, float z = {0}> {
        q = Mul(x, z) a = Add(q, e) s = Sqrt(a) y = Div(q, s) }""",
    "denominators_mixed": H
    + "g (float[2,4] x) => (float[2,4] y) <float[4] e = {1e-9, 1, 2, 3}> { d = Div(x, e) y = Sigmoid(d) }",
    "eps_attribute": H
    + """g (float[1,1,2,2] x) => (float[1,1,2,2] y) <float[1] s = {1}, float[1] b = {0}, float z = {0}> {
        q = Mul(x, z) y = InstanceNormalization<epsilon = 1e-12>(q, s, b) }""",
    "eps_of_norm": H
    + """g (float[2,4] x) => (float[2,4] y) <float z = {0}, float e = {1e-12}, int64[2] s = {2, 4}> { q = Mul(x, z)
        n = ReduceL2<axes = [-1]>(q) c = Max(n, e) b = Expand(c, s) y = Div(q, b) }""",
    "empty_initializer": H
    + """g (float[2,1] x) => (float[2,1] y) <float[2,0] e = {}> { r = Relu(x) c = Concat<axis = 1>(r, e) y =
        Neg(c) }""",
    "empty_constant": H
    + """g (float[2,1] x) => (float[2,1] y) { e = Constant<value = float[2,0] {}>()
        r = Relu(x) c = Concat<axis = 1>(r, e) y = Neg(c) }""",
    "empty_input": H + "g (float[2,1] x, float[2,0] e) => (float[2,1] y) { c = Concat<axis = 1>(x, e) y = Relu(c) }",
    "empty_output": H + "g (float[2,1] x, float[2,0] e) => (float[2,1] y, float[2,0] z) { y = Relu(x) z = Relu(e) }",
    "constants": H
    + """g (float[1] x) => (float[2] y, string[2] z) {
        a = Constant<value_float = 1.5>() b = Constant<value_floats = [1.0, 2.0]>() c = Constant<value_int = 3>()
        d = Constant<value_ints = [3, 4]>() z = Constant<value_strings = ["s", "t"]>() f = Constant<value_float = 0.3>()
        g1 = Constant<value = float16[2] {15360, 16384}>() h = Constant<value = float[2] {0.5, 0.25}>()
        i = Add(x, a) j = Mul(i, b) k = Cast<to = 1>(g1) l = Add(j, k) m = Add(l, h) n = Celu(f) o = Add(m, n)
        p = Mul(o, f) q = Cast<to = 1>(d) r = Cast<to = 1>(c) s = Div(q, r) y = Add(p, s) }""",
    "constant_of_shape": H
    + """g (float[2,3] x) => (float[2,3] y) { s = Shape(x) a = ConstantOfShape(s) b = ConstantOfShape<value =
        float[1] {2}>(s)
        c = Celu(b) d = Add(x, a) e = Mul(d, b) y = Add(e, c) }""",
    "generated": H
    + """g (float[2,3] x) => (float[2,3] y) <float zero = {0}, float three = {3}, float one = {1}, int64 n = {3}> {
        e = EyeLike<dtype = 1>(x) f = Add(x, e) r = Range(zero, three, one) g1 = Mul(f, r) h = CastLike(n, x)
        y = Add(g1, h) }""",
    "random": H
    + """g (float[2,3] x) => (float[2,3] y) { a = RandomUniformLike<seed = 1.0>(x) b = RandomUniform<shape =
        [2, 3], seed = 1.0>()
        c = Add(a, b) zero = Sub(c, c) y = Add(x, zero) }""",
    "computed_constants": H
    + """g (float[2,3] x) => (float[2,3] y) <float[3] w = {300, 2, 3}, float[3] i = {0.01, 1, 1}> {
        s = Mul(w, w) t = Mul(s, i) a = Add(x, t) y = Div(a, t) }""",
}

CASTS = {
    "cast_chain": H
    + """g (float[2,3] x) => (float[2,3] y) { a = Cast<to = 10>(x) b = Cast<to = 1>(a) c = Cast<to = 10>(b)
        d = Cast<to = 1>(c) r = Relu(d) e = Cast<to = 10>(r) f = Cast<to = 1>(e) g1 = Cast<to = 10>(f)
        y = Cast<to = 1>(g1) }""",
    "cast_input_to_output": H
    + "g (float[2,3] x) => (float16[2,3] y, float[2,3] z) { y = Cast<to = 10>(x) z = Relu(x) }",
    "cast_through": H + "g (float[2,3] x) => (float[2,3] y) { a = Cast<to = 10>(x) y = Cast<to = 1>(a) }",
    "cast_same_type": H + "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) y = Cast<to = 1>(a) }",
    "cast_same_type_inside": H + "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) b = Cast<to = 1>(a) y = Neg(b) }",
    "cast_twice": H
    + """g (float[2,3] x) => (float16[2,3] y, float16[2,3] z, float[2,3] u) {
        a = Relu(x) y = Cast<to = 10>(a) z = Cast<to = 10>(a) u = Neg(a) }""",
    "cast_output_cast": H
    + """g (float[2,3] x) => (float16[2,3] y, float[2,3] z) { a = Relu(x) y = Cast<to = 10>(a) b = Cast<to =
        1>(y) z = Neg(b) }""",
    "cast_narrowing_pair": H
    + "g (float[2,3] x) => (float[2,3] y) { a = Celu(x) b = Cast<to = 10>(a) c = Cast<to = 1>(b) y = Celu(c) }",
    "cast_bfloat16_pair": H
    + "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) b = Cast<to = 16>(a) c = Cast<to = 1>(b) y = Neg(c) }",
    "cast_integer_pair": H
    + "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) b = Cast<to = 6>(a) c = Cast<to = 1>(b) y = Neg(c) }",
    "cast_several_readers": H
    + """g (float[2,3] x) => (float[2,3] y, float[2,3] z) <float16[3] h = {15360, 16384, 16896}> {
        r = Relu(x) a = Cast<to = 10>(r) b = Add(a, h) c = Mul(a, h) d = Cast<to = 1>(b) e = Cast<to = 1>(c)
        y = Neg(d) z = Celu(e) }""",
    "cast_integers_mixed": H
    + """g (int64[2,3] i, float[2,3] x) => (float[2,3] y, float[2,3] z) { f = Cast<to = 1>(i) y = Mul(f, x) z
        = Celu(f) }""",
    "cast_integers_low": H + "g (int64[2,3] i, float[2,3] x) => (float[2,3] y) { f = Cast<to = 1>(i) y = Mul(f, x) }",
    "cast_large_integers": H
    + """g (float[1,8] x) => (float[1,8] y) <int64[8] p = {0, 1, 2049, 4099, 50001, 65519, 65520, 100000},
        float s = {1e-5}> {
        f = Cast<to = 1>(p) a = Mul(f, s) b = Add(a, x) y = Neg(b) }""",
    "cast_to_integers": H + """g (float[2,3] x) => (int64[2,3] i, float[2,3] y) { i = Cast<to = 7>(x) y = Relu(x) }""",
    "cast_bool": H
    + """g (float[2,3] x) => (float[2,3] y) { z = Sub(x, x) a = Cast<to = 9>(x) b = Cast<to = 1>(a) c =
        Add(b, z) y = Neg(c) }""",
    "cast_double": H
    + """g (float[2,3] x) => (float[2,3] y) <double[3] w = {0.1, 0.2, 0.3}> {
        a = Relu(x) b = Cast<to = 11>(a) c = Mul(b, w) d = Cast<to = 1>(c) y = Neg(d) }""",
    "double_io": H + "g (double[2,3] x) => (double[2,3] y) { a = Cast<to = 1>(x) b = Relu(a) y = Cast<to = 11>(b) }",
    "half_io": H
    + """g (float16[2,3] x) => (float16[2,3] y) <float[3] w = {1, 2, 3}> {
        a = Cast<to = 1>(x) b = Mul(a, w) y = Cast<to = 10>(b) }""",
    "half_initializer": H
    + """g (float[2,3] x) => (float[2,3] y) <float16[3] w = {15360, 16384, 11878}> {
        a = Cast<to = 1>(w) y = Mul(x, a) }""",
    "half_inside": H
    + """g (float[2,3] x) => (float[2,3] y) <float16[3] w = {15360, 16384, 11878}> {
        a = Cast<to = 10>(x) b = Mul(a, w) c = Cast<to = 1>(b) y = Neg(c) }""",
}

INTERFACES = {
    "output_is_input": H
    + "g (float[2,3] x, float[2,3] u) => (float[2,3] y, float[2,3] u) { a = Add(x, u) y = Relu(a) }",
    "output_is_initializer": H
    + "g (float[2,3] x) => (float[2,3] y, float[3] w) <float[3] w = {0.1, 0.2, 0.3}> { a = Add(x, w) y = Relu(a) }",
    "output_is_constant": H
    + "g (float[2,3] x) => (float[2,3] y, float[3] w) { w = Constant<value_floats = [0.1, 0.2, 0.3]>() y = Add(x, w) }",
    "output_is_computed_constant": H
    + "g (float[2,3] x) => (float[2,3] y, float[3] v) <float[3] w = {0.1, 0.2, 0.3}> { v = Neg(w) y = Add(x, v) }",
    "input_unused": H + "g (float[2,3] x, float[7] u) => (float[2,3] y) { y = Relu(x) }",
    "initializer_unused": H + "g (float[2,3] x) => (float[2,3] y) <float[1] w = {0.1}> { y = Relu(x) }",
    "initializer_as_input": H
    + "g (float[2,3] x, float[3] w) => (float[2,3] y) <float[3] w = {0.1, 0.2, 0.3}> { a = Add(x, w) y = Relu(a) }",
    "dead_node": H + "g (float[2,3] x) => (float[2,3] y) { y = Relu(x) d = Neg(x) }",
    "integers_only_output": H + "g (float[2,3] x) => (int64[2] y, float[2,3] z) { z = Relu(x) y = Shape(z) }",
    "value_info": H
    + """g (float[n,3] x) => (float[n,3] y) <float[n,3] a, float[3] w = {1, 2, 3}> { a = Mul(x, w) y = Relu(a) }""",
}

BODIES = {
    "if_captures": H
    + """g (float[2,3] x, bool c) => (float[2,3] y) <float[3] w = {0.1, 0.2, 0.3}> { r = Relu(x) y = If(c) <
        then_branch = t () => (float[2,3] a) { a = Add(r, w) },
        else_branch = e () => (float[2,3] b) { b1 = Mul(r, w) b = Neg(b1) }> }""",
    "if_value_info": H
    + """g (float[2,3] x, bool c) => (float[2,3] y) { r = Relu(x) y = If(c) <
        then_branch = t () => (float[2,3] a) <float[2,3] r> { a = Identity(r) },
        else_branch = e () => (float[2,3] b) <float[2,3] r, float[2,3] s> { s = Neg(r) b = Neg(s) }> }""",
    "if_gemm": H
    + """g (float[1,4] x, bool c) => (float[1,3] y) <float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3}, float[3] b = {1, 2, 3}> {
        y = If(c) < then_branch = t () => (float[1,3] p) { p = Gemm(x, w, b) },
        else_branch = e () => (float[1,3] q) { q1 = Gemm(x, w, b) q = Relu(q1) }> }""",
    "if_weight_in_two_branches": H
    + """g (float[2,3] a, float[2,3] b, bool c) => (float[2,3] y) <float[3,3] w = {1,2,3,4,5,6,7,8,9}> { y = If(c) <
        then_branch = t () => (float[2,3] p) { p = MatMul(a, w) },
        else_branch = e () => (float[2,3] q) { q = MatMul(b, w) }> }""",
    "if_mixed_readers": H
    + """g (float[2,3] x, bool c) => (float[2,3] y, float[2,3] z) <float[3] w = {0.1, 0.2, 0.3}> { z = Add(x,
        w) y = If(c) <
        then_branch = t () => (float[2,3] p) { d = Celu(w) p = Add(x, d) },
        else_branch = e () => (float[2,3] q) { q = Mul(z, w) }> }""",
    "if_own_constants": H
    + """g (float[2,3] x, bool c) => (float[2,3] y) { y = If(c) <
        then_branch = t () => (float[2,3] p) <float[3] w = {0.1, 0.2, 0.3}> { p = Add(x, w) },
        else_branch = e () => (float[2,3] q) { w1 = Constant<value_float = 0.3>() d = Celu(w1) q1 = Mul(x,
        w1) q = Add(q1, d) }> }""",
    "if_wide_constant": H
    + """g (float[2,3] x, bool c, bool[2,3] m) => (float[2,3] y) <float big = {-3.4e38}> { y = If(c) <
        then_branch = t () => (float[2,3] p) { a = Where(m, x, big) p = Softmax(a) },
        else_branch = e () => (float[2,3] q) { q = Softmax(x) }> }""",
    "if_yields_mask": H
    + """g (float[2,3] x, bool c, bool[2,3] m) => (float[2,3] y) <float big = {-3.4e38}> { u = If(c) <
        then_branch = t () => (float[2,3] p) { p = If(c) <
            then_branch = tt () => (float[2,3] pp) { a = Where(m, x, big) pp = Identity(a) },
            else_branch = te () => (float[2,3] pq) { pq = Neg(x) }> },
        else_branch = e () => (float[2,3] q) { q = Where(m, x, big) }> y = Softmax(u) }""",
    "if_chained": H
    + """g (float[2,3] x, bool c) => (float[2,3] y) { u = If(c) <
        then_branch = t () => (float[2,3] p) { p = Neg(x) },
        else_branch = e () => (float[2,3] q) { q = Relu(x) }>
        y = If(c) < then_branch = t2 () => (float[2,3] r) { r = Neg(u) },
        else_branch = e2 () => (float[2,3] s) { s1 = Abs(u) s = Sqrt(s1) }> }""",
    "if_nested": H
    + """g (float[2,3] x, bool c) => (float[2,3] y) <float[3] w = {0.1, 0.2, 0.3}> { r = Neg(x) y = If(c) <
        then_branch = t () => (float[2,3] a) { s = Add(r, w) a = If(c) <
            then_branch = tt () => (float[2,3] aa) { aa = Mul(s, w) },
            else_branch = te () => (float[2,3] ab) { ab1 = Neg(r) ab = Add(ab1, s) }> },
        else_branch = e () => (float[2,3] b) { b = Relu(x) }> }""",
    "if_captures_if": H
    + """g (float[2,3] x, bool c) => (float[2,3] y) { u = If(c) <
        then_branch = t () => (float[2,3] p) { p = Neg(x) },
        else_branch = e () => (float[2,3] q) { q = Relu(x) }>
        z = Neg(u) y = If(c) < then_branch = t2 () => (float[2,3] r) { k = If(c) <
            then_branch = t3 () => (float[2,3] r1) { r1 = Add(u, z) },
            else_branch = e3 () => (float[2,3] r2) { r2 = Neg(u) }> r = Neg(k) },
        else_branch = e2 () => (float[2,3] s) { s = Neg(z) }> }""",
    "if_passes_outer": H
    + """g (float[2,3] x, bool c) => (float[2,3] y) { r = Relu(x) y = If(c) <
        then_branch = t () => (float[2,3] r) { z = Neg(x) },
        else_branch = e () => (float[2,3] b) { b = Neg(r) }> }""",
    "if_other_types": H
    + """g (float[2,3] x, bool c) => (float[2,3] y, int64[2] z) { r = Relu(x) y, z = If(c) <
        then_branch = t () => (float[2,3] a, int64[2] i) { a = Neg(r) i = Shape(r) },
        else_branch = e () => (float[2,3] b, int64[2] j) { b = Abs(r) j = Shape(b) }> }""",
    "loop": H
    + """g (float[2,3] x, bool c) => (float[2,3] y, float[k] s) <int64 n = {3}, float h = {0.5}> { r = Neg(x)
        y, s = Loop(n, c, r) <
        body = b (int64 i, bool ci, float[2,3] state) => (bool co, float[2,3] next, float each) {
            co = Identity(ci) a = Add(state, x) next = Mul(a, h) each = ReduceSum<keepdims = 0>(next) }> }""",
    "loop_counter": H
    + """g (float[2,3] x, bool c) => (float[2,3] y) <int64 n = {3}> { y = Loop(n, c, x) <
        body = b (int64 i, bool ci, float[2,3] state) => (bool co, float[2,3] next) {
            co = Identity(ci) f = Cast<to = 1>(i) next = Add(state, f) }> }""",
    "loop_passes_state": H
    + """g (float[2,3] x, bool c) => (float[2,3] y, float[k,2,3] s) <int64 n = {2}> { y, s = Loop(n, c, x) <
        body = b (int64 i, bool ci, float[2,3] state) => (bool co, float[2,3] state, float[2,3] each) {
            co = Identity(ci) each = Neg(state) }> }""",
    "scan": H
    + """g (float[3] init, float[4,3] x) => (float[3] y, float[4,3] s) { y, s = Scan<num_scan_inputs = 1,
        body = b (float[3] state, float[3] row) => (float[3] next, float[3] each) {
            t = Add(state, row) next = Tanh(t) each = Mul(next, row) }>(init, x) }""",
    "sequence": H
    + """g (float[2,3] x) => (float[2,3] y) <int64 at = {1}> {
        r = Neg(x) s = SequenceConstruct(r, x) e = SequenceAt(s, at) y = Relu(e) }""",
    "sequence_concat": H
    + """g (float[2,3] x) => (float[2,6] y) { r = Neg(x) s = SequenceConstruct(r, x) e = ConcatFromSequence<axis = 1>(s)
        y = Relu(e) }""",
    "sequence_split": H
    + """g (float[2,4] x) => (float[2,1] y) <int64 at = {1}> {
        r = Neg(x) s = SplitToSequence<axis = 1>(r) e = SequenceAt(s, at) y = Relu(e) }""",
    "optional": H18
    + """g (float[2,3] x) => (float[2,3] y, bool h) {
        r = Neg(x) o = Optional(r) h = OptionalHasElement(o) e = OptionalGetElement(o) y = Relu(e) }""",
    "function": head(17, foo=1)
    + """g (float[2,3] x) => (float[2,3] y) { r = Neg(x) v = foo.Twice(r) y = Relu(v) }
        <domain: "foo", opset_import: ["": 17]> Twice (a) => (b) { c = Constant<value_float = 2.0>() b = Mul(a, c) }""",
    "contrib": head(17, **{"com.microsoft": 1})
    + "g (float[2,3] x) => (float[2,3] y) { r = Neg(x) v = com.microsoft.Gelu(r) y = Relu(v) }",
}

QDQ = {
    "qdq": head(19)
    + """g (float[2,3] x) => (float[2,3] y) <float s = {0.02}, int8 z = {0}> {
        r = Neg(x) q = QuantizeLinear(r, s, z) d = DequantizeLinear(q, s, z) y = Relu(d) }""",
    "qdq_weight": head(19)
    + """g (float[2,3] x) => (float[2,2] y) <float s = {0.02}, int8 z = {0}, int8[3,2] w = {1,2,-3,4,5,-128},
        float[2] ws = {0.011, 0.013}, int8[2] wz = {0, 0}> { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        v = DequantizeLinear<axis = 1>(w, ws, wz) m = MatMul(d, v) y = Relu(m) }""",
    "qdq_old_opset": head(13)
    + """g (float[2,3] x) => (float[2,3] y) <float s = {0.02}, int8 z = {0}> {
        r = Neg(x) q = QuantizeLinear(r, s, z) d = DequantizeLinear(q, s, z) y = Relu(d) }""",
    "qdq_scale_underflows": head(19)
    + """g (float[2,3] x) => (float[2,2] y) <int8[3,2] w = {1,2,-3,4,5,-128}, float[2] ws = {0.01, 7e-9}> {
        v = DequantizeLinear<axis = 1>(w, ws) y = MatMul(x, v) }""",
    "qdq_scale_loses": head(19)
    + """g (float[2,3] x) => (float[2,3] y) <float s = {1.4e-6}, int8 z = {0}, float t = {1e-4}> {
        r = Mul(x, t) q = QuantizeLinear(r, s, z) d = DequantizeLinear(q, s, z) y = Relu(d) }""",
    "qdq_scale_overflows": head(19)
    + """g (float[2,3] x) => (float[2,3] y) <float s = {1e6}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Sigmoid(d) }""",
    "qdq_scale_shared": head(19)
    + """g (float[2,3] x) => (float[2,3] y) <float s = {0.02}, int8 z = {0}> {
        c = Celu(x) q = QuantizeLinear(c, s, z) d = DequantizeLinear(q, s, z) r = Relu(d) y = Mul(r, s) }""",
    "dynamic_quantize": H
    + """g (float[2,3] x) => (float[2,3] y) { r = Neg(x) q, s, z = DynamicQuantizeLinear(r) d =
        DequantizeLinear(q, s, z) y = Neg(d) }""",
}

MODELS = {**PLAIN, **RESIZE, **VALUES, **CASTS, **INTERFACES, **BODIES, **QDQ}
