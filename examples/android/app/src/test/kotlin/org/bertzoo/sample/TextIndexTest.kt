package org.bertzoo.sample

import java.io.File
import java.util.Random
import kotlin.math.sqrt
import org.junit.Assert.assertEquals
import org.junit.Assert.assertNull
import org.junit.Test

/** Tests of the index with drawn vectors; they need neither a phone nor a model. */
class TextIndexTest {
    private val draw = Random(0)
    private val texts = List(50) { "text $it, größer" }
    private val vectors = texts.associateWith { vector() }
    private val index = TextIndex.build(texts, vectors::getValue)

    private fun vector() = FloatArray(64) { draw.nextGaussian().toFloat() }

    private fun cosine(one: FloatArray, other: FloatArray): Float {
        val dot = one.zip(other) { a, b -> (a * b).toDouble() }.sum()
        return (dot / sqrt(one.sumOf { (it * it).toDouble() } * other.sumOf { (it * it).toDouble() })).toFloat()
    }

    @Test
    fun `nearest returns the largest cosines, and a text is closest to itself`() {
        val query = vector()
        val expected = vectors.map { (text, vector) -> text to cosine(query, vector) }.sortedByDescending { it.second }
        val found = index.nearest(query, 7)
        assertEquals(7, found.size)
        found.forEachIndexed { at, (text, cosine) ->
            assertEquals(cosine(query, vectors.getValue(text)), cosine, 0.01f)
            assertEquals(expected[at].second, cosine, 0.01f)
        }
        for ((text, vector) in vectors) assertEquals(text, index.nearest(vector, 1).single().first)
    }

    @Test
    fun `a written index is read with its key alone`() {
        val file = File.createTempFile("texts", ".index")
        index.write(file, "key")
        val query = vector()
        assertEquals(index.nearest(query, 50), TextIndex.read(file, "key")!!.nearest(query, 50))
        assertNull(TextIndex.read(file, "other key"))
        file.delete()
        assertNull(TextIndex.read(file, "key"))
    }

    @Test
    fun `a damaged index is no index`() {
        val file = File.createTempFile("texts", ".index")
        index.write(file, "key")
        val whole = file.readBytes()
        for (length in listOf(0, 3, 8, 12, whole.size / 2, whole.size - 1)) {
            file.writeBytes(whole.copyOf(length))
            assertNull(TextIndex.read(file, "key"))
        }
        file.writeBytes(whole.clone().also { it[9] = 127 }) // the number of texts, or of a text's bytes
        assertNull(TextIndex.read(file, "key"))
        file.delete()
    }

    @Test
    fun `no texts have no results`() {
        assertEquals(emptyList<Any>(), TextIndex.build(emptyList(), vectors::getValue).nearest(vector(), 5))
    }

    @Test(expected = IllegalStateException::class)
    fun `a query of another size is an error`() {
        index.nearest(FloatArray(3), 5)
    }
}
